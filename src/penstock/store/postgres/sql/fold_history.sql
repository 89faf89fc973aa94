-- history_pkey: spans of one length before an instant, the oldest first, become part of longer ones. No sum changes.
WITH old AS MATERIALIZED (
    SELECT ctid AS row FROM penstock.history
    WHERE span = %(span)s::integer AND at < %(before)s
    ORDER BY at
    LIMIT %(limit)s
),
gone AS (
    DELETE FROM penstock.history USING old WHERE history.ctid = old.row RETURNING history.*
),
folded AS (
    INSERT INTO penstock.history AS kept (span, at, queue, type, move, before, after, bucket, jobs, millis)
    SELECT %(longer)s::integer, at / %(longer)s * %(longer)s, queue, type, move, before, after, bucket, sum(jobs), sum(millis)
    FROM gone
    GROUP BY at / %(longer)s, queue, type, move, before, after, bucket
    ON CONFLICT (span, at, queue, type, move, before, after, bucket)
    DO UPDATE SET jobs = kept.jobs + excluded.jobs, millis = kept.millis + excluded.millis
)
SELECT count(*) FROM gone
