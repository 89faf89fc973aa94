#!lua flags=allow-oom
-- Put tickets that were taken and not wanted back at the heads of their queues; the ids of a group come last one first.
admit_all('LPUSH', 1)
return 0
