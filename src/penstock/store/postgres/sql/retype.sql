-- jobs_pkey, in the order of the ids. The fence: only the owner of the newest claim may say what kind of job it is.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest((SELECT %(ids)s::uuid[]), (SELECT %(fences)s::bigint[])) AS asked (id, fence)
),
held AS MATERIALIZED (
    SELECT jobs.id, jobs.queue, jobs.type, clock.now
    FROM penstock.fenced_clock(%(now)s) AS clock, penstock.jobs JOIN asked USING (id)
    WHERE jobs.fence = asked.fence AND jobs.state = 'running' AND jobs.type <> %(type)s
    ORDER BY jobs.id
    FOR UPDATE OF jobs
),
moved AS (
    UPDATE penstock.jobs SET type = %(type)s FROM held WHERE jobs.id = ANY (ARRAY[held.id])
),
told AS (
    INSERT INTO penstock.journal (at, jobs, queue, type, move, before, after)
    SELECT CASE WHEN %(keep)s THEN min(now) END, count(*), queue, type, 'retype', 'running', NULL
    FROM held GROUP BY queue, type
    UNION ALL
    SELECT CASE WHEN %(keep)s THEN min(now) END, count(*), queue, %(type)s, 'retype', NULL, 'running'
    FROM held GROUP BY queue
)
SELECT count(*) FROM held
