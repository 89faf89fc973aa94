-- unticketed, one look for each queue that has queued jobs. Expired jobs are no backlog: nobody will dispatch them.
SELECT waiting.queue
FROM (SELECT DISTINCT queue FROM counts WHERE state = 'queued' AND jobs > 0) AS waiting
WHERE EXISTS (
    SELECT 1 FROM jobs INDEXED BY unticketed
    WHERE jobs.queue = waiting.queue AND state = 'queued' AND ticket_until IS NULL
      AND (expires_at IS NULL OR expires_at > :now)
)
