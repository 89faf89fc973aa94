-- The primary key of jobs. The fence keeps a lost owner's lines out of the log, and the lock keeps the owner one until they
-- are written; of two that write to one log, the second waits here.
SELECT seq FROM penstock.fenced_clock(NULL), penstock.jobs
WHERE id = %(id)s AND fence = %(fence)s AND state = 'running'
FOR NO KEY UPDATE OF jobs
