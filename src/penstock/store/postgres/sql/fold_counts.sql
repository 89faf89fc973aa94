-- One process folds at a time; the others skip it meanwhile. Reads a bounded part: the rest is folded next time.
WITH mine AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7033520117203105) AS mine),
folded AS (
    DELETE FROM penstock.count_changes
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM penstock.count_changes WHERE (SELECT mine FROM mine) LIMIT 10000))
    RETURNING queue, type, before, after, jobs
)
INSERT INTO penstock.counts (queue, type, state, jobs)
SELECT queue, type, state, sum(jobs)
FROM (
    SELECT queue, type, after AS state, jobs FROM folded WHERE after IS NOT NULL
    UNION ALL
    SELECT queue, type, before, -jobs FROM folded WHERE before IS NOT NULL
) AS change
GROUP BY queue, type, state
HAVING sum(jobs) <> 0
ON CONFLICT (queue, type, state) DO UPDATE SET jobs = counts.jobs + excluded.jobs
