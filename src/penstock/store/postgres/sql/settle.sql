-- jobs_pkey, in the order of the ids. The fence lets only the newest claim write an outcome; the state lets it do so once.
-- An error stays until another replaces it: it tells of the last attempt that errored, whatever came after.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
outcome AS (
    SELECT * FROM unnest(
        (SELECT %(ids)s::uuid[]), (SELECT %(fences)s::bigint[]), (SELECT %(states)s::text[]),
        (SELECT %(retries)s::bigint[]), (SELECT %(losses)s::boolean[]), (SELECT %(reasons)s::text[]),
        (SELECT %(errors)s::text[]), (SELECT %(results)s::bytea[]), (SELECT %(objects)s::text[]),
        (SELECT %(outputs)s::text[]), (SELECT %(owning)s::boolean[])
    ) WITH ORDINALITY AS outcome (
        id, fence, outcome, retry_in, loss, outcome_reason, outcome_error, result, result_object, outputs, owning, n
    )
),
gone AS (
    DELETE FROM penstock.jobs USING outcome, clock
    WHERE jobs.id = ANY (ARRAY[outcome.id])
      AND jobs.fence = outcome.fence
      AND jobs.state = 'running'
    RETURNING n, outcome, outcome_reason, retry_in, loss, owning, outcome_error, result, result_object, outputs, jobs.*
),
kept AS (
    INSERT INTO penstock.ended (
        -- include ended
    )
    SELECT
        id, seq, coalesce(now + retry_in, due_at), created_at, started_at, now, expires_at, cancel_requested_at,
        timeout, tick_at, "interval", attempt, (fence & 4194303)::integer, (fence >> 22)::integer, losses + loss::integer, priority, owns_objects OR owning,
        retry_of, outcome, type, queue, worker, outcome_reason, idempotency_key, anchor, schedule, retry, tags, progress,
        coalesce(outcome_error, error), inputs, outputs, params_object, result_object, params, result,
        version + 1
    FROM gone, clock
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'settle', 'running', outcome,
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version + 1) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s),
        array_agg(outcome_reason) FILTER (WHERE %(keep)s AND %(reasoned)s),
        array_agg(least(greatest((SELECT now FROM clock) - started_at, 0), 2147483647)::integer) FILTER (WHERE %(keep)s)
    FROM gone GROUP BY queue, type, outcome
)
SELECT n, type, queue, outcome, fence, attempt, outcome_reason, now, version + 1, now - started_at FROM gone, clock
