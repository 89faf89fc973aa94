-- jobs_pkey, in the order of the ids. The fence guards the next owner's lease against a late release of the last one.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
given_back AS MATERIALIZED (
    SELECT * FROM unnest(
        (SELECT %(ids)s::uuid[]), (SELECT %(fences)s::bigint[]), (SELECT %(suspects)s::boolean[]),
        (SELECT %(delays)s::bigint[])
    ) WITH ORDINALITY AS given_back (id, fence, suspect, delay, n)
),
moved AS (
    UPDATE penstock.jobs
    SET state = CASE WHEN given_back.delay IS NULL THEN 'queued' ELSE 'scheduled' END,
        due_at = coalesce(now + given_back.delay, jobs.due_at),
        reason = NULL,
        lease_until = NULL,
        ticket_until = NULL,
        worker = NULL,
        started_at = NULL,
        progress = NULL,
        attempt = attempt - 1,
        alone = alone OR given_back.suspect
    FROM given_back, clock
    WHERE jobs.id = ANY (ARRAY[given_back.id])
      AND jobs.fence = given_back.fence
      AND state = 'running'
      AND cancel_requested_at IS NULL
    RETURNING n, type, queue, state, jobs.fence, attempt, reason, now
),
counted AS (
    INSERT INTO penstock.count_changes (queue, type, before, after, jobs)
    SELECT queue, type, 'running', state, count(*) FROM moved GROUP BY queue, type, state
)
SELECT * FROM moved
