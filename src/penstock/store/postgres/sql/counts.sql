-- fresh. One snapshot of both tables: numbering moves from the one to the other in one commit.
SELECT queue, type, state, sum(jobs)::bigint
FROM (
    SELECT queue, type, state, jobs FROM penstock.counts
    UNION ALL
    SELECT queue, type, after, jobs FROM penstock.journal WHERE number IS NULL AND after IS NOT NULL
    UNION ALL
    SELECT queue, type, before, -jobs FROM penstock.journal WHERE number IS NULL AND before IS NOT NULL
) AS change
GROUP BY queue, type, state
HAVING sum(jobs) <> 0
ORDER BY queue, type, state
