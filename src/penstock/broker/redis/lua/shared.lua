-- What the scripts share; put before each of them. KEYS[1] is the name that every key begins with.
local base = KEYS[1]
local SLACK_MS = 10000
-- Lua cannot unpack much more than this into one call.
local CHUNK = 1000
-- How many waiters of a type are read together; most often the first takes everything.
local PAGE = 16

local function call_in_chunks(command, key, items, answer)
  for first = 1, #items, CHUNK do
    answer(redis.call(command, key, unpack(items, first, math.min(first + CHUNK - 1, #items))), first)
  end
end

local function ignore() end

-- Lengths go before the names, here and in what is taken: whatever a name holds, it is separated from its neighbours.
local function line_name(queue, type)
  return #queue .. ':' .. queue .. '/' .. type
end

local function lane_key(priority, queue, type)
  return base .. ':lane:' .. priority .. ':' .. line_name(queue, type)
end

-- Ids of one priority, queue and type, for `broker.redis.wire` to read: a text line of numbers, then queue, type and ids without a gap.
local function packed(lane, ids)
  local lengths = table.concat({lane.priority, #lane.queue, #lane.type, #ids}, ' ')
  return lengths .. '\n' .. lane.queue .. lane.type .. table.concat(ids)
end

local function index_key(type)
  return base .. ':lanes:' .. type
end

local function raise_depth(queue, type, count)
  local line = line_name(queue, type)
  if count ~= 0 and redis.call('HINCRBY', base .. ':depths', line, count) == 0 then
    redis.call('HDEL', base .. ':depths', line)
  end
end

-- A memory without an epoch is new, and the waiters of the old one are not listed: they are told to ask again.
local function know_epoch(proposed)
  local epoch = redis.call('GET', base .. ':epoch')
  if not epoch then
    epoch = proposed
    redis.call('SET', base .. ':epoch', epoch)
    redis.call('PUBLISH', base .. ':again', epoch)
  end
  return epoch
end

local function set_of(names)
  local set = {}
  for _, name in ipairs(names) do set[name] = true end
  return set
end

local function request_of(text)
  local request = cjson.decode(text)
  request.queues = request.queues and set_of(request.queues)
  request.except_queues = set_of(request.except_queues or {})
  request.least_priority = request.least_priority or {}
  return request
end

local function wants(request, queue, priority)
  return (not request.queues or request.queues[queue]) and not request.except_queues[queue]
    and priority >= (request.least_priority[queue] or 0)
end

-- The lists with wanted tickets, one for each priority, queue and type: highest priority first, then by turn.
local function wanted_lanes(request)
  local lanes = {}
  for _, type in ipairs(request.types) do
    local members = redis.call('ZRANGE', index_key(type), 0, -1, 'WITHSCORES')
    for at = 1, #members, 2 do
      local priority, queue = members[at]:match('^(%d+):(.*)$')
      if wants(request, queue, tonumber(priority)) then
        lanes[#lanes + 1] = {
          type = type, queue = queue, priority = tonumber(priority), turn = tonumber(members[at + 1]),
          member = members[at], key = lane_key(priority, queue, type),
        }
      end
    end
  end
  table.sort(lanes, function(one, other)
    if one.priority ~= other.priority then return one.priority > other.priority end
    if one.turn ~= other.turn then return one.turn < other.turn end
    return one.member < other.member
  end)
  return lanes
end

-- Take up to `part` ids out of a list: how many, and whether there are more. A list with more has its next turn last.
local function pop(lane, part, taken)
  local ids = redis.call('LPOP', lane.key, part)
  taken[#taken + 1] = packed(lane, ids)
  call_in_chunks('SREM', base .. ':held', ids, ignore)
  raise_depth(lane.queue, lane.type, -#ids)
  if #ids == part and redis.call('EXISTS', lane.key) == 1 then
    redis.call('ZADD', index_key(lane.type), redis.call('INCR', base .. ':turn'), lane.member)
    return #ids, true
  end
  redis.call('ZREM', index_key(lane.type), lane.member)
  return #ids, false
end

-- Take up to `room` ids from lists of one priority, in equal parts as far as they reach; the room that is left.
local function share(lanes, room, taken)
  while #lanes > 0 and room > 0 do
    local part = math.max(1, math.floor(room / #lanes))
    local left = {}
    for _, lane in ipairs(lanes) do
      local more = true
      if room > 0 then
        local count
        count, more = pop(lane, math.min(part, room), taken)
        room = room - count
      end
      if more then left[#left + 1] = lane end
    end
    lanes = left
  end
  return room
end

-- Up to the request's limit, as pieces of one text, one for each list.
local function pick(request)
  local taken, room, level = {}, request.limit, {}
  for _, lane in ipairs(wanted_lanes(request)) do
    if #level > 0 and level[1].priority ~= lane.priority then
      room = share(level, room, taken)
      level = {}
    end
    level[#level + 1] = lane
  end
  share(level, room, taken)
  return taken
end

-- Take a waiter off the lists of its types; true when it was listed.
local function leave(taker)
  local text = redis.call('GET', base .. ':taker:' .. taker)
  if not text then return false end
  redis.call('DEL', base .. ':taker:' .. taker)
  for _, type in ipairs(cjson.decode(text).types) do
    redis.call('ZREM', base .. ':waiting:' .. type, taker)
  end
  return true
end

-- Give a waiter what it wants; one whose process is gone, or that is no longer known, is only taken off. True when it was.
local function serve_one(type, taker)
  local text = redis.call('GET', base .. ':taker:' .. taker)
  local channel = base .. ':to:' .. taker:match('^[^.]*')
  if not text then
    redis.call('ZREM', base .. ':waiting:' .. type, taker)
    return true
  end
  if redis.call('PUBSUB', 'NUMSUB', channel)[2] == 0 then
    return leave(taker)
  end
  local taken = pick(request_of(text))
  if #taken > 0 then
    redis.call('PUBLISH', channel, taker .. '\n' .. table.concat(taken))
    return leave(taker)
  end
  return false
end

local function serve_line(type)
  local key, first = base .. ':waiting:' .. type, 0
  repeat
    local takers = redis.call('ZRANGE', key, first, first + PAGE - 1)
    for _, taker in ipairs(takers) do
      if redis.call('EXISTS', index_key(type)) == 0 then return end
      if not serve_one(type, taker) then first = first + 1 end
    end
  until #takers == 0
end

-- No waiter may stay listed while there is a ticket that it wants: called for every type that has got tickets.
local function serve(types)
  for type in pairs(types) do serve_line(type) end
end

local function ids_of(bytes)
  local ids, seen = {}, {}
  for at = 1, #bytes, 16 do
    local id = bytes:sub(at, at + 15)
    if not seen[id] then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
  return ids
end

local function not_held(ids)
  local fresh = {}
  call_in_chunks('SMISMEMBER', base .. ':held', ids, function(known, first)
    for at, is_known in ipairs(known) do
      if is_known == 0 then fresh[#fresh + 1] = ids[first + at - 1] end
    end
  end)
  return fresh
end

-- Put ids into a list, at the end (RPUSH) or, the last one first, at the head (LPUSH).
local function admit(push, priority, queue, type, ids)
  local key = lane_key(priority, queue, type)
  if redis.call('EXISTS', key) == 0 then
    redis.call('ZADD', index_key(type), redis.call('INCR', base .. ':turn'), priority .. ':' .. queue)
  end
  call_in_chunks('SADD', base .. ':held', ids, ignore)
  call_in_chunks(push, key, ids, ignore)
  raise_depth(queue, type, #ids)
end

-- The groups of tickets in ARGV from `first` on, four words each: priority, queue, type, ids of 16 bytes.
local function admit_all(push, first)
  local types = {}
  for at = first, #ARGV, 4 do
    local priority, queue, type = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local fresh = not_held(ids_of(ARGV[at + 3]))
    if #fresh > 0 then
      admit(push, priority, queue, type, fresh)
    end
    types[type] = true
  end
  serve(types)
end
