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
        alone = alone OR given_back.suspect,
        version = version + 1
    FROM given_back, clock
    WHERE jobs.id = ANY (ARRAY[given_back.id])
      AND jobs.fence = given_back.fence
      AND state = 'running'
      AND cancel_requested_at IS NULL
    RETURNING n, type, queue, state, jobs.fence, attempt, reason, now, version, jobs.id
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'release', 'running', state,
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s), NULL, NULL
    FROM moved GROUP BY queue, type, state
)
SELECT n, type, queue, state, fence, attempt, reason, now, version FROM moved
