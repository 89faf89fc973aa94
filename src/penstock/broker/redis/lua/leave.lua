#!lua flags=allow-oom
-- Take waiters off the lists; how many were still listed. The others have been given tickets. ARGV: the waiters.
local left = 0
for _, taker in ipairs(ARGV) do
  if leave(taker) then left = left + 1 end
end
return left
