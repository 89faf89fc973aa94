-- unticketed, for each queue and type in its order: highest priority first, then oldest. A row that is locked stays where it is, so
-- that its ctid finds it.
-- Rows that another move has locked are skipped, so that no claim waits here: each is about to be claimed, dispatched or ended.
-- State and ticket are compared again: only jobs that are still queued without a ticket are claimed.
-- Expired jobs are passed over; their reaper is about to end them.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
next AS MATERIALIZED (
    SELECT first.row, share.n
    FROM unnest(
        (SELECT %(queues)s::text[]), (SELECT %(types)s::text[]), (SELECT %(jobs)s::bigint[])
    ) WITH ORDINALITY AS share (queue, type, jobs, n),
    LATERAL (
        SELECT ctid AS row FROM penstock.jobs
        WHERE jobs.queue = share.queue AND jobs.type = share.type AND place = 1
          AND (expires_at IS NULL OR expires_at > (SELECT now FROM clock))
        ORDER BY priority DESC, seq
        LIMIT share.jobs
        FOR UPDATE SKIP LOCKED
    ) AS first
),
claimed AS (
    UPDATE penstock.jobs
    SET state = 'running',
        attempt = attempt + 1,
        fence = greatest(fence, clock.base + (fence & 4194303)) + 1,
        worker = %(worker)s,
        lease_until = clock.now + %(lease)s,
        started_at = clock.now,
        begun = false,
        version = version + 1
    FROM next, clock
    WHERE jobs.ctid = next.row AND state = 'queued' AND ticket_until IS NULL
    RETURNING jobs.id,
        -- include claim,
        started_at - due_at AS waited, n, seq, version
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
SELECT id,
    -- include claim,
    waited
FROM claimed
ORDER BY n, priority DESC, seq
