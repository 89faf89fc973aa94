-- away: the window and what runs, all looked at. What is held by another move has been claimed, or comes next time.
WITH over AS MATERIALIZED (
    SELECT id FROM penstock.jobs
    WHERE place = 2 AND state = 'queued'
    FOR UPDATE SKIP LOCKED
)
UPDATE penstock.jobs
SET ticket_until = NULL
FROM over
WHERE jobs.id = ANY (ARRAY[over.id]) AND state = 'queued'
