-- ended_pkey of one partition, which is dropped next: all that prune.sql does besides deleting the jobs themselves.
WITH gone AS MATERIALIZED (
    SELECT id, seq, queue, type, state, owns_objects, idempotency_key, tags FROM penstock.ended
    WHERE id >= %(first)s::uuid AND id < %(past)s::uuid
),
unlocked AS (
    DELETE FROM penstock.keys USING gone
    WHERE idempotency_key IS NOT NULL AND keys.key = ANY (ARRAY[gone.idempotency_key]) AND keys.job = gone.id
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
SELECT count(*), coalesce(array_agg(id) FILTER (WHERE owns_objects), '{}') FROM gone
