-- ticketed, one range for each queue that has queued jobs.
UPDATE jobs INDEXED BY ticketed
SET ticket_until = NULL
WHERE queue IN (SELECT queue FROM counts WHERE state = 'queued' AND jobs > 0)
  AND state = 'queued' AND ticket_until IS NOT NULL
