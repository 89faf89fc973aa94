#!lua flags=allow-oom
-- Tickets for a request; without any, and with a wait, the waiter is listed until it is served, leaves or its time is over.
-- ARGV: the request, the taker, how long it waits in milliseconds.
local request = request_of(ARGV[1])
local taken = pick(request)
local wait = tonumber(ARGV[3])
if #taken == 0 and wait > 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('SET', base .. ':taker:' .. ARGV[2], ARGV[1], 'PX', wait + SLACK_MS)
  for _, type in ipairs(request.types) do
    -- Waiters of killed processes would stay listed for types that are not submitted any more.
    redis.call('ZREMRANGEBYSCORE', base .. ':waiting:' .. type, '-inf', now - SLACK_MS)
    redis.call('ZADD', base .. ':waiting:' .. type, now + wait, ARGV[2])
  end
end
return table.concat(taken)
