-- jobs_pkey, in the order of the ids. Waiting jobs end here and now; running ones are marked once, or ended with fence + 1
-- so that their owner can write nothing more. What has ended is not there.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
held AS MATERIALIZED (
    SELECT jobs.id, state <> 'running' OR %(force)s AS ends
    FROM penstock.jobs
    WHERE id = ANY (%(ids)s::uuid[])
      AND (state <> 'running' OR %(force)s OR cancel_requested_at IS NULL)
    ORDER BY id
    FOR UPDATE
),
marked AS (
    UPDATE penstock.jobs
    -- A claim that came between: the CHECK sees the row as it was before, when it was still queued, and must let it pass.
    SET cancel_requested_at = CASE WHEN jobs.state = 'running' THEN clock.now END,
        version = version + 1
    FROM held, clock
    WHERE jobs.id = ANY (ARRAY[held.id]) AND NOT ends
    RETURNING jobs.id, type, queue, state, fence, attempt, reason, version
),
gone AS (
    DELETE FROM penstock.jobs USING held
    WHERE jobs.id = ANY (ARRAY[held.id]) AND ends
    RETURNING jobs.*
),
kept AS (
    INSERT INTO penstock.ended (
        -- include ended
    )
    SELECT
        id, seq, due_at, created_at, started_at, now, expires_at, coalesce(cancel_requested_at, now), timeout,
        tick_at, "interval", attempt, ((fence + (state = 'running')::integer) & 4194303)::integer,
        ((fence + (state = 'running')::integer) >> 22)::integer, losses, priority, owns_objects, retry_of, 'cancelled', type, queue, worker, 'cancel requested', idempotency_key, anchor, schedule, retry, tags, progress,
        error, inputs, NULL, params_object, NULL, params, NULL,
        version + 1
    FROM gone, clock
    ON CONFLICT (id) DO NOTHING
),
moved AS (
    SELECT id, type, queue, state, fence, attempt, reason, version, state AS before FROM marked
    UNION ALL
    SELECT id, type, queue, 'cancelled', fence + (state = 'running')::integer, attempt, 'cancel requested', version + 1, state
    FROM gone
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'cancel', before, state,
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s),
        CASE WHEN count(reason) > 0 THEN array_agg(reason) FILTER (WHERE %(keep)s) END, NULL
    FROM moved GROUP BY queue, type, before, state
)
SELECT id, type, queue, state, fence, attempt, reason, now, version, before FROM moved, clock
