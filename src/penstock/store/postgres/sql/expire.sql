-- expiring: the earliest first. What another move holds is passed over: it may be about to start.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
late AS MATERIALIZED (
    SELECT id, (SELECT now FROM clock) AS now FROM penstock.jobs
    WHERE state IN ('scheduled', 'queued') AND expires_at <= (SELECT now FROM clock)
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM penstock.jobs USING late
    WHERE jobs.id = ANY (ARRAY[late.id]) AND state IN ('scheduled', 'queued') AND expires_at <= now
    RETURNING jobs.*, now
),
kept AS (
    INSERT INTO penstock.ended (
        -- include ended
    )
    SELECT
        id, seq, due_at, created_at, started_at, now, expires_at, cancel_requested_at, timeout, tick_at, "interval",
        attempt, (fence & 4194303)::integer, (fence >> 22)::integer, losses, priority, owns_objects, retry_of, 'expired', type, queue, worker,
        'not started before expires_at', idempotency_key, anchor, schedule, retry, tags, progress, error, inputs, NULL,
        params_object, NULL, params, NULL, version + 1
    FROM gone
    ON CONFLICT (id) DO NOTHING
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'expire', state, 'expired',
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version + 1) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s),
        array_agg('not started before expires_at'::text) FILTER (WHERE %(keep)s), NULL
    FROM gone GROUP BY queue, type, state
)
SELECT id, type, queue, 'expired', fence, attempt, 'not started before expires_at', now, version + 1, state FROM gone
ORDER BY expires_at
