-- jobs_pkey, in the order of the ids. The fence lets only the newest claim write an outcome; the state lets it do so once.
-- `gone` is read three times. What all three read comes first, and a column that is not read is left out: a row is taken apart up
-- to the last column that is read.
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
    RETURNING n, jobs.fence, started_at, now, attempt, version + 1 AS version, outcome, type, queue, outcome_reason, jobs.id, seq,
        coalesce(now + retry_in, due_at) AS due_at, created_at, expires_at, cancel_requested_at, timeout, tick_at, "interval",
        losses + loss::integer AS losses, priority, owns_objects OR owning AS owns_objects, retry_of, worker,
        idempotency_key, anchor, schedule, retry, tags, progress, coalesce(outcome_error, error) AS error, inputs, outputs,
        params_object, result_object, params, result
),
kept AS (
    INSERT INTO penstock.ended (
        -- include ended
    )
    SELECT
        id, seq, due_at, created_at, started_at, now, expires_at, cancel_requested_at, timeout, tick_at, "interval",
        attempt, (fence & 4194303)::integer, (fence >> 22)::integer, losses, priority, owns_objects, retry_of, outcome,
        type, queue, worker, outcome_reason, idempotency_key, anchor, schedule, retry, tags, progress, error, inputs,
        outputs, params_object, result_object, params, result, version
    FROM gone
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'settle', 'running', outcome,
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s),
        array_agg(outcome_reason) FILTER (WHERE %(keep)s AND %(reasoned)s),
        array_agg(least(greatest(now - started_at, 0), 2147483647)::integer) FILTER (WHERE %(keep)s)
    FROM gone GROUP BY queue, type, outcome
)
SELECT n, type, queue, outcome, fence, attempt, outcome_reason, now, version, now - started_at FROM gone
