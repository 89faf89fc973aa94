-- finished_anchors: the first to end goes first. With it go its key, tags and log.
WITH old AS MATERIALIZED (
    SELECT id FROM penstock.ended
    WHERE completed_at <= %(until)s AND anchor
    ORDER BY completed_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM penstock.ended USING old WHERE ended.id = ANY (ARRAY[old.id])
    RETURNING ended.id, seq, queue, type, state, owns_objects, idempotency_key, tags
),
unlocked AS (
    DELETE FROM penstock.keys USING gone WHERE keys.key = ANY (ARRAY[gone.idempotency_key]) AND keys.job = gone.id
),
untagged AS (
    DELETE FROM penstock.job_tags USING gone WHERE tags IS NOT NULL AND job_tags.seq = ANY (ARRAY[gone.seq])
),
unlogged AS (
    DELETE FROM penstock.job_logs USING gone WHERE job_logs.seq = ANY (ARRAY[gone.seq])
),
told AS (
    INSERT INTO penstock.journal (at, jobs, queue, type, move, before)
    SELECT CASE WHEN %(keep)s THEN %(now)s::bigint END, count(*), queue, type, 'prune', state FROM gone GROUP BY queue, type, state
)
SELECT id, owns_objects FROM gone
