-- jobs_pkey, in the order of the ids. The fence: only the owner of the newest claim may say what kind of job it is.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest((SELECT %(ids)s::uuid[]), (SELECT %(fences)s::bigint[])) AS asked (id, fence)
),
held AS MATERIALIZED (
    SELECT jobs.id, jobs.queue, jobs.type FROM penstock.fenced_clock(NULL), penstock.jobs JOIN asked USING (id)
    WHERE jobs.fence = asked.fence AND jobs.state = 'running' AND jobs.type <> %(type)s
    ORDER BY jobs.id
    FOR UPDATE OF jobs
),
moved AS (
    UPDATE penstock.jobs SET type = %(type)s FROM held WHERE jobs.id = ANY (ARRAY[held.id])
),
counted AS (
    INSERT INTO penstock.count_changes (queue, type, before, after, jobs)
    SELECT queue, type, 'running', NULL, count(*) FROM held GROUP BY queue, type
    UNION ALL
    SELECT queue, %(type)s, NULL, 'running', count(*) FROM held GROUP BY queue
)
SELECT count(*) FROM held
