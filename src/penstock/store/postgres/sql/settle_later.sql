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
        owns_objects = owns_objects OR outcome.owning
    FROM outcome, clock
    WHERE jobs.id = ANY (ARRAY[outcome.id])
      AND jobs.fence = outcome.fence
      AND jobs.state = 'running'
      AND cancel_requested_at IS NULL
    RETURNING n, type, queue, state, jobs.fence, attempt, jobs.reason, now
),
counted AS (
    INSERT INTO penstock.count_changes (queue, type, before, after, jobs)
    SELECT queue, type, 'running', 'scheduled', count(*) FROM moved GROUP BY queue, type
)
SELECT * FROM moved
