-- away: the window and what runs, all looked at. Only those that nobody is about to claim: what is held by another move has been claimed, or comes next time.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
over AS MATERIALIZED (
    SELECT id FROM penstock.jobs
    WHERE place = 2 AND state = 'queued' AND ticket_until <= coalesce(%(until)s, (SELECT now FROM clock))
    FOR UPDATE SKIP LOCKED
)
UPDATE penstock.jobs
SET ticket_until = NULL
FROM over
WHERE jobs.id = ANY (ARRAY[over.id]) AND state = 'queued'
