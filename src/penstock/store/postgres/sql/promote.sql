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
    SET state = 'queued', version = version + 1
    FROM late
    WHERE jobs.id = ANY (ARRAY[late.id]) AND state = 'scheduled' AND due_at <= now
    RETURNING jobs.id, type, queue, state, fence, attempt, reason, now, version, due_at, seq
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'dispatch', 'scheduled', 'queued',
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s),
        CASE WHEN count(reason) > 0 THEN array_agg(reason) FILTER (WHERE %(keep)s) END, NULL
    FROM moved GROUP BY queue, type
)
SELECT * FROM moved ORDER BY due_at, seq
