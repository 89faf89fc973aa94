-- unticketed, for each queue and type in its order: highest priority first, then oldest. A row that is locked stays where it is, so
-- that its ctid finds it.
-- The ticket guard is repeated: a job whose ticket is out gets no second one before the first has lapsed.
-- Expired jobs are passed over; their reaper is about to end them. So are those that another dispatcher has just taken.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
next AS MATERIALIZED (
    SELECT first.row, room.n
    FROM unnest(
        (SELECT %(queues)s::text[]), (SELECT %(types)s::text[]), (SELECT %(rooms)s::bigint[])
    ) WITH ORDINALITY AS room (queue, type, free, n),
    LATERAL (
        SELECT ctid AS row FROM penstock.jobs
        WHERE jobs.queue = room.queue AND jobs.type = room.type AND place = 1
          AND (expires_at IS NULL OR expires_at > (SELECT now FROM clock))
        ORDER BY priority DESC, seq
        LIMIT room.free
        FOR UPDATE SKIP LOCKED
    ) AS first
),
moved AS (
    UPDATE penstock.jobs
    SET ticket_until = clock.now + %(ticket_for)s
    FROM next, clock
    WHERE jobs.ctid = next.row AND state = 'queued' AND ticket_until IS NULL
    RETURNING jobs.id, queue, type, priority, seq, n
)
SELECT id, queue, type, priority FROM moved ORDER BY n, priority DESC, seq
