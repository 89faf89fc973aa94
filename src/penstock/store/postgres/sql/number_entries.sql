-- fresh, in the order of the ids, which is that of the moves of each job. The caller holds the head: nothing else numbers or
-- deletes these, so that their ctid finds them. All that is counted here is counted in `counts` from this commit on.
WITH fresh AS MATERIALIZED (
    SELECT ctid AS row, id, at, jobs, queue, type, move, before, after, spans, ids IS NOT NULL AS kept
    FROM penstock.journal
    WHERE number IS NULL
    ORDER BY id
    LIMIT %(limit)s
),
placed AS MATERIALIZED (
    SELECT row, %(head)s::bigint + row_number() OVER (ORDER BY id) AS number,
        greatest(%(latest_at)s::bigint, max(at) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING)) AS latest_at
    FROM fresh
    WHERE kept
),
numbered AS (
    UPDATE penstock.journal
    SET number = placed.number, latest_at = placed.latest_at, spans = NULL
    FROM placed
    WHERE journal.ctid = placed.row
),
dropped AS (
    DELETE FROM penstock.journal USING fresh WHERE journal.ctid = fresh.row AND NOT kept
),
counted AS (
    INSERT INTO penstock.counts AS kept (queue, type, state, jobs)
    SELECT queue, type, state, sum(jobs)
    FROM (
        SELECT queue, type, after AS state, jobs FROM fresh WHERE after IS NOT NULL
        UNION ALL
        SELECT queue, type, before, -jobs FROM fresh WHERE before IS NOT NULL
    ) AS change
    GROUP BY queue, type, state
    HAVING sum(jobs) <> 0
    ON CONFLICT (queue, type, state) DO UPDATE SET jobs = kept.jobs + excluded.jobs
),
recorded AS (
    INSERT INTO penstock.history AS kept (span, at, queue, type, move, before, after, bucket, jobs, millis)
    SELECT 10000, at / 10000 * 10000, queue, type, move, coalesce(before, ''), coalesce(after, ''), timed.bucket,
        sum(timed.jobs), sum(timed.millis)
    FROM fresh, LATERAL (
        SELECT -1 AS bucket, fresh.jobs, 0 AS millis WHERE spans IS NULL
        UNION ALL
        -- The number of binary digits: how many powers of two it reaches.
        SELECT width_bucket(span::float8, ARRAY(SELECT 2 ^ digit FROM generate_series(0, 30) AS digit)), count(*), sum(span)
        FROM unnest(spans) AS span GROUP BY 1
    ) AS timed
    WHERE at IS NOT NULL
    GROUP BY at / 10000, queue, type, move, before, after, timed.bucket
    ON CONFLICT (span, at, queue, type, move, before, after, bucket)
    DO UPDATE SET jobs = kept.jobs + excluded.jobs, millis = kept.millis + excluded.millis
),
moved AS (
    UPDATE penstock.journal_head
    SET number = coalesce((SELECT max(placed.number) FROM placed), number),
        latest_at = coalesce((SELECT max(placed.latest_at) FROM placed), latest_at)
    WHERE id = 1
    RETURNING number
)
SELECT moved.number, (SELECT count(*) FROM fresh) FROM moved
