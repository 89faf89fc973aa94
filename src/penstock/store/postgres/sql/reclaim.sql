-- away: the window and what runs, all looked at. Those that ran out first; one that another move holds is not lost,
-- and passed over.
-- ON CONFLICT: what has ended has ended. One that is there twice must not keep the reaper from all others.
-- fence + 1 locks the lost owner out; a mark decides before poison does. Only a job that was alone in its worker, and had
-- begun, is surely the one that took it down.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
lost AS MATERIALIZED (
    SELECT id, (SELECT now FROM clock) AS now,
        CASE
            WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN begun AND alone_in_worker AND losses + 1 >= %(poison)s THEN 'failed'
            ELSE 'queued'
        END AS outcome
    FROM penstock.jobs
    WHERE place = 2 AND state = 'running' AND lease_until <= (SELECT now FROM clock)
    ORDER BY lease_until
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
back AS (
    UPDATE penstock.jobs
    SET state = 'queued',
        reason = NULL,
        worker = NULL,
        started_at = NULL,
        progress = NULL,
        lease_until = NULL,
        ticket_until = NULL,
        attempt = attempt - 1,
        losses = losses + begun::integer,
        alone_in_worker = alone_in_worker OR (begun AND losses + 1 >= %(suspect)s),
        fence = fence + 1,
        version = version + 1
    FROM lost
    WHERE jobs.id = ANY (ARRAY[lost.id]) AND outcome = 'queued'
      AND state = 'running' AND lease_until <= now
    RETURNING jobs.id, type, queue, state, fence, attempt, reason, now, version
),
gone AS (
    DELETE FROM penstock.jobs USING lost
    WHERE jobs.id = ANY (ARRAY[lost.id]) AND outcome <> 'queued'
      AND state = 'running' AND lease_until <= now
    RETURNING jobs.*, outcome, now,
        CASE outcome WHEN 'cancelled' THEN 'cancel requested' ELSE 'poison' END AS outcome_reason
),
kept AS (
    INSERT INTO penstock.ended (
        -- include ended
    )
    SELECT
        id, seq, due_at, created_at, started_at, now, expires_at, cancel_requested_at, timeout, tick_at, "interval",
        attempt - 1, ((fence + 1) & 4194303)::integer, ((fence + 1) >> 22)::integer, losses + begun::integer, priority, owns_objects, retry_of, outcome, type, queue, worker,
        outcome_reason, idempotency_key, anchor, schedule, retry, tags, progress,
        CASE outcome WHEN 'cancelled' THEN error ELSE json_build_object(
            'code', 'worker_lost',
            'message', 'worker ' || worker || ' was lost while it ran this job and no other; ' || losses || ' processes died under it before',
            'attempt', attempt
        )::text END,
        inputs, NULL, params_object, NULL, params, NULL, version + 1
    FROM gone
    ON CONFLICT (id) DO NOTHING
),
moved AS (
    SELECT id, type, queue, state, fence, attempt, reason, now, version FROM back
    UNION ALL
    SELECT id, type, queue, outcome, fence + 1, attempt - 1, outcome_reason, now, version + 1 FROM gone
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'reclaim', 'running', state,
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s),
        CASE WHEN count(reason) > 0 THEN array_agg(reason) FILTER (WHERE %(keep)s) END, NULL
    FROM moved GROUP BY queue, type, state
)
SELECT * FROM moved
