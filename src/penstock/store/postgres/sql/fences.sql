-- jobs_pkey, ended_pkey: what became of jobs whose fence was refused. As in jobs_by_id.sql, each in its own partition.
SELECT id, fence FROM penstock.jobs WHERE id = ANY (%(ids)s::uuid[])
UNION ALL
SELECT over.id, over.fence
FROM unnest(%(ids)s::uuid[]) AS asked (asked)
CROSS JOIN LATERAL (
    SELECT id, (epoch::bigint << 22) + fence AS fence FROM penstock.ended
    WHERE ended.id = asked AND ended.id BETWEEN %(first)s::uuid AND %(last)s::uuid
    LIMIT 1
) AS over
