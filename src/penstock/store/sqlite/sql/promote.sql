-- due: the earliest first. NOT INDEXED: the outer part goes by seq alone.
-- State and time are repeated so that only a job still waiting for its time is moved.
UPDATE jobs NOT INDEXED
SET state = 'queued', ticket_until = NULL, version = version + 1
WHERE seq IN (
    SELECT seq FROM jobs INDEXED BY due
    WHERE state = 'scheduled' AND due_at <= :now
    ORDER BY due_at
    LIMIT :limit
)
AND state = 'scheduled' AND due_at <= :now
RETURNING
    -- include moved,
    due_at, seq
