-- unticketed: for each queue and type, the oldest of each priority. away: of those with a ticket the oldest has about waited longest.
WITH RECURSIVE waiting (queue, type) AS (
    (SELECT queue, type FROM penstock.jobs WHERE place = 1 ORDER BY queue, type LIMIT 1)
    UNION ALL
    SELECT next.queue, next.type
    FROM waiting, LATERAL (
        SELECT jobs.queue, jobs.type FROM penstock.jobs
        WHERE place = 1 AND (jobs.queue, jobs.type) > (waiting.queue, waiting.type)
        ORDER BY jobs.queue, jobs.type LIMIT 1
    ) AS next
)
SELECT queue, min(due_at)
FROM (
    SELECT waiting.queue, first.due_at
    FROM waiting, generate_series(0, 9) AS urgency (priority), LATERAL (
        SELECT due_at FROM penstock.jobs
        WHERE jobs.queue = waiting.queue AND jobs.type = waiting.type AND place = 1
          AND jobs.priority = urgency.priority::smallint
        ORDER BY seq LIMIT 1
    ) AS first
    UNION ALL
    (
        SELECT queue, due_at FROM penstock.jobs
        WHERE place = 2 AND state = 'queued'
        ORDER BY seq LIMIT 10000
    )
) AS oldest
GROUP BY queue
