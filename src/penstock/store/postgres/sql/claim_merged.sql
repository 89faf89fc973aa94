-- As claim_next, for queues in which several types are asked for.
-- unticketed, for each queue: from the highest priority of its types down, and of equal priorities the type first whose
-- next job is the oldest. Levels are walked until there is enough, so that nothing is locked that is not claimed.
-- A row that is locked stays where it is, so that its ctid finds it.
-- Rows that another move has locked are skipped, so that no claim waits here: each is about to be claimed, dispatched or ended.
-- State and ticket are compared again: only jobs that are still queued without a ticket are claimed.
-- Expired jobs are passed over; their reaper is about to end them.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
next AS MATERIALIZED (
    SELECT first.row, share.n
    FROM unnest(
        (SELECT %(queues)s::text[]), (SELECT %(jobs)s::bigint[]), (SELECT %(starts)s::bigint[]), (SELECT %(ends)s::bigint[])
    ) WITH ORDINALITY AS share (queue, jobs, type_start, type_end, n),
    LATERAL (
        SELECT job.row
        FROM (
            SELECT line.type, level.priority::smallint
            FROM unnest((%(types)s::text[])[share.type_start:share.type_end]) AS line (type),
            LATERAL (
                SELECT priority, seq FROM penstock.jobs
                WHERE jobs.queue = share.queue AND jobs.type = line.type AND place = 1
                  AND (expires_at IS NULL OR expires_at > (SELECT now FROM clock))
                ORDER BY priority DESC, seq
                LIMIT 1
            ) AS head,
            generate_series(head.priority::integer, 0, -1) AS level (priority)
            ORDER BY level.priority DESC, head.seq
        ) AS level,
        LATERAL (
            SELECT ctid AS row FROM penstock.jobs
            WHERE jobs.queue = share.queue AND jobs.type = level.type AND place = 1 AND jobs.priority = level.priority
              AND (expires_at IS NULL OR expires_at > (SELECT now FROM clock))
            ORDER BY seq
            LIMIT share.jobs
            FOR UPDATE SKIP LOCKED
        ) AS job
        LIMIT share.jobs
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
