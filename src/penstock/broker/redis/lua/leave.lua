#!lua flags=allow-oom
-- Takers leave their lines; how many of them still stood there. The others have been given tickets. ARGV: the takers.
local left = 0
for _, taker in ipairs(ARGV) do
  if leave(taker) then left = left + 1 end
end
return left
