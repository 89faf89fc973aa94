-- unticketed, one lookup for each queue and type; due. Expired jobs are no backlog: they are never dispatched.
-- The look is no EXISTS: that may become a join, which reads the whole backlog.
WITH RECURSIVE clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
waiting (queue, type) AS (
    (SELECT queue, type FROM penstock.jobs WHERE place = 1 ORDER BY queue, type LIMIT 1)
    UNION ALL
    SELECT next.queue, next.type
    FROM waiting, LATERAL (
        SELECT jobs.queue, jobs.type FROM penstock.jobs
        WHERE place = 1 AND (jobs.queue, jobs.type) > (waiting.queue, waiting.type)
        ORDER BY jobs.queue, jobs.type LIMIT 1
    ) AS next
)
SELECT
    (SELECT due_at FROM penstock.jobs WHERE place = 0 ORDER BY due_at, seq LIMIT 1),
    ARRAY(
        SELECT ARRAY[queue, type] FROM waiting, clock
        WHERE (
            SELECT true FROM penstock.jobs
            WHERE jobs.queue = waiting.queue AND jobs.type = waiting.type AND place = 1
              AND (expires_at IS NULL OR expires_at > clock.now)
            LIMIT 1
        )
    )
