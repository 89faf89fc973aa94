#!lua flags=allow-oom
-- Tickets that were taken and not wanted, to the heads of their lanes; the ids of a lane come last one first.
admit_all('LPUSH', 1)
return 0
