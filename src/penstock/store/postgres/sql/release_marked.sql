-- jobs_pkey, in the order of the ids: jobs given back that are marked for cancelling end here.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
given_back AS MATERIALIZED (
    SELECT * FROM unnest(
        (SELECT %(ids)s::uuid[]), (SELECT %(fences)s::bigint[])
    ) WITH ORDINALITY AS given_back (id, fence, n)
),
gone AS (
    DELETE FROM penstock.jobs USING given_back, clock
    WHERE jobs.id = ANY (ARRAY[given_back.id])
      AND jobs.fence = given_back.fence
      AND state = 'running'
      AND cancel_requested_at IS NOT NULL
    RETURNING jobs.*, n
),
kept AS (
    INSERT INTO penstock.ended (
        -- include ended
    )
    SELECT
        id, seq, due_at, created_at, started_at, now, expires_at, cancel_requested_at, timeout, tick_at, "interval",
        attempt - 1, (fence & 4194303)::integer, (fence >> 22)::integer, losses, priority, owns_objects, retry_of, 'cancelled', type, queue, worker,
        'cancel requested', idempotency_key, anchor, schedule, retry, tags, progress, error, inputs, NULL, params_object,
        NULL, params, NULL, version + 1
    FROM gone, clock
    ON CONFLICT (id) DO NOTHING
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'release', 'running', 'cancelled',
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version + 1) FILTER (WHERE %(keep)s), array_agg(attempt - 1) FILTER (WHERE %(keep)s),
        array_agg('cancel requested'::text) FILTER (WHERE %(keep)s), NULL
    FROM gone GROUP BY queue, type
)
SELECT n, type, queue, 'cancelled', fence, attempt - 1, 'cancel requested', now, version + 1 FROM gone, clock
