-- jobs_pkey, in the order of the ids: outcomes that are to be tried again. A job marked for cancelling is left to
-- settle.sql, so that no attempt starts after the mark. What ended by itself, and killed no process, is under suspicion no longer.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
outcome AS MATERIALIZED (
    SELECT * FROM unnest(
        (SELECT %(ids)s::uuid[]), (SELECT %(fences)s::bigint[]), (SELECT %(retries)s::bigint[]),
        (SELECT %(losses)s::boolean[]), (SELECT %(reasons)s::text[]), (SELECT %(errors)s::text[]),
        (SELECT %(owning)s::boolean[])
    ) WITH ORDINALITY AS outcome (id, fence, retry_in, loss, reason, error, owning, n)
),
moved AS (
    UPDATE penstock.jobs
    SET state = 'scheduled',
        reason = outcome.reason,
        due_at = coalesce(clock.now + outcome.retry_in, jobs.due_at),
        lease_until = NULL,
        ticket_until = NULL,
        worker = NULL,
        started_at = NULL,
        progress = NULL,
        losses = losses + outcome.loss::integer,
        alone = alone AND outcome.loss,
        alone_in_worker = alone_in_worker AND outcome.loss,
        error = coalesce(outcome.error, jobs.error),
        owns_objects = owns_objects OR outcome.owning,
        version = version + 1
    FROM outcome, clock
    WHERE jobs.id = ANY (ARRAY[outcome.id])
      AND jobs.fence = outcome.fence
      AND jobs.state = 'running'
      AND cancel_requested_at IS NULL
    RETURNING n, type, queue, state, jobs.fence, attempt, jobs.reason, now, version, jobs.id
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'settle', 'running', 'scheduled',
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s),
        CASE WHEN count(reason) > 0 THEN array_agg(reason) FILTER (WHERE %(keep)s) END, NULL
    FROM moved GROUP BY queue, type
)
SELECT n, type, queue, state, fence, attempt, reason, now, version FROM moved
