-- One snapshot of both tables: a fold moves from the one to the other in one write.
SELECT queue, type, state, sum(jobs)::bigint
FROM (
    SELECT queue, type, state, jobs FROM penstock.counts
    UNION ALL
    SELECT queue, type, after, jobs FROM penstock.count_changes WHERE after IS NOT NULL
    UNION ALL
    SELECT queue, type, before, -jobs FROM penstock.count_changes WHERE before IS NOT NULL
) AS change
GROUP BY queue, type, state
HAVING sum(jobs) <> 0
ORDER BY queue, type, state
