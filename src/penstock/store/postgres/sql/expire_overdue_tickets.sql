-- jobs_pkey. Locked rows are skipped: another move is claiming the job, or the next call finds it.
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
