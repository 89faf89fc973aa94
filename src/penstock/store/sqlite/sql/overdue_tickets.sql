-- ticketed, one range for each queue that has queued jobs; all that is overdue is read and sorted.
SELECT id FROM jobs INDEXED BY ticketed
WHERE queue IN (SELECT queue FROM counts WHERE state = 'queued' AND jobs > 0)
  AND state = 'queued' AND ticket_until IS NOT NULL AND ticket_until <= :now AND id > :after
ORDER BY id
LIMIT :limit
