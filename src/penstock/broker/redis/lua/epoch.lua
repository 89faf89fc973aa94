#!lua flags=allow-oom
-- The name of this memory, and of the process that holds it: a snapshot read back or a replica promoted may lack tickets.
-- ARGV: the epoch if there is none yet.
local run = redis.pcall('INFO', 'server')
return know_epoch(ARGV[1]) .. (type(run) == 'string' and run:match('run_id:(%x%x%x%x%x%x%x%x)') or '')
