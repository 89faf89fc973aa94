-- jobs_pkey. Only those that nobody is about to claim: what is held by another move has been claimed, or comes next time.
-- The deadline is compared: a job that has got a new ticket meanwhile keeps it.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
asked AS (SELECT * FROM unnest((SELECT %(ids)s::uuid[])) AS asked (id)),
over AS MATERIALIZED (
    SELECT job.id
    FROM asked, LATERAL (
        SELECT id FROM penstock.jobs
        WHERE jobs.id = asked.id AND state = 'queued' AND ticket_until <= (SELECT now FROM clock)
        FOR UPDATE SKIP LOCKED
    ) AS job
)
UPDATE penstock.jobs
SET ticket_until = NULL
FROM over
WHERE jobs.id = ANY (ARRAY[over.id]) AND state = 'queued'
