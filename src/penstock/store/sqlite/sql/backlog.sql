-- unticketed, one lookup for each queue and type with queued jobs. Expired jobs are no backlog: they are never dispatched.
SELECT queue, type
FROM counts
WHERE state = 'queued' AND jobs > 0 AND EXISTS (
    SELECT 1 FROM jobs INDEXED BY unticketed
    WHERE jobs.queue = counts.queue AND jobs.type = counts.type AND state = 'queued' AND ticket_until IS NULL
      AND (expires_at IS NULL OR expires_at > :now)
)
