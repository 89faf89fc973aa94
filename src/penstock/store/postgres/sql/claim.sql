-- jobs_pkey. State guards against late and doubled tickets; expires_at against starting an expired job.
-- The caller gives the ids in their order, in which the rows are then locked: two batches never wait for each other.
-- ANY leaves the planner no join but one look-up after the other: hashed, they would be locked in the order of the heap.
-- ticket_until is not cleared: changing an indexed column would prevent a HOT update.
-- A row that another move has locked is waited for: if it were skipped, its job would wait until its ticket expires.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
wanted AS (
    SELECT * FROM unnest(
        (SELECT %(ids)s::uuid[]), (SELECT %(workers)s::text[]), (SELECT %(leases)s::bigint[])
    ) WITH ORDINALITY AS wanted (id, worker, lease, n)
),
claimed AS (
    UPDATE penstock.jobs
    SET state = 'running',
        attempt = attempt + 1,
        fence = greatest(fence, clock.base + (fence & 4194303)) + 1,
        worker = wanted.worker,
        lease_until = clock.now + wanted.lease,
        started_at = clock.now,
        begun = false,
        version = version + 1
    FROM wanted, clock
    WHERE jobs.id = ANY (ARRAY[wanted.id])
      AND state = 'queued'
      AND (expires_at IS NULL OR expires_at > clock.now)
    RETURNING n,
        -- include claim,
        started_at - due_at AS waited, jobs.id, version
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, 'claim', 'queued', 'running',
        array_agg(id) FILTER (WHERE %(keep)s), array_agg(version) FILTER (WHERE %(keep)s), array_agg(attempt) FILTER (WHERE %(keep)s), NULL,
        array_agg(least(greatest(waited, 0), 2147483647)::integer) FILTER (WHERE %(keep)s)
    FROM claimed GROUP BY queue, type
)
SELECT n,
    -- include claim,
    waited
FROM claimed
