-- unticketed, from queue to queue and one look into each; due. Expired jobs are no backlog: nobody will dispatch them.
-- The look is no EXISTS: that may become a join, which reads the whole backlog.
WITH RECURSIVE clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
waiting (queue) AS (
    (SELECT queue FROM penstock.jobs WHERE place = 1 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT jobs.queue FROM penstock.jobs
        WHERE place = 1 AND jobs.queue > waiting.queue
        ORDER BY jobs.queue LIMIT 1
    )
    FROM waiting WHERE waiting.queue IS NOT NULL
)
SELECT
    (SELECT due_at FROM penstock.jobs WHERE place = 0 ORDER BY due_at, seq LIMIT 1),
    ARRAY(
        SELECT queue FROM waiting, clock
        WHERE queue IS NOT NULL AND (
            SELECT true FROM penstock.jobs
            WHERE jobs.queue = waiting.queue AND place = 1
              AND (expires_at IS NULL OR expires_at > clock.now)
            LIMIT 1
        )
    )
