-- due: the earliest first. State and time are repeated so that only a job still waiting for its time is moved.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
late AS MATERIALIZED (
    SELECT id, (SELECT now FROM clock) AS now FROM penstock.jobs
    WHERE place = 0 AND due_at <= (SELECT now FROM clock)
    ORDER BY due_at, seq
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
moved AS (
    UPDATE penstock.jobs
    SET state = 'queued'
    FROM late
    WHERE jobs.id = ANY (ARRAY[late.id]) AND state = 'scheduled' AND due_at <= now
    RETURNING jobs.id, type, queue, state, fence, attempt, reason, now, due_at, seq
),
counted AS (
    INSERT INTO penstock.count_changes (queue, type, before, after, jobs)
    SELECT queue, type, 'scheduled', 'queued', count(*) FROM moved GROUP BY queue, type
)
SELECT * FROM moved ORDER BY due_at, seq
