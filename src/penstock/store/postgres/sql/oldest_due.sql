-- unticketed: from queue to queue, the oldest of each priority. away: of those with a ticket the oldest has about waited longest.
WITH RECURSIVE waiting (queue) AS (
    (SELECT queue FROM penstock.jobs WHERE place = 1 ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT jobs.queue FROM penstock.jobs
        WHERE place = 1 AND jobs.queue > waiting.queue
        ORDER BY jobs.queue LIMIT 1
    )
    FROM waiting WHERE waiting.queue IS NOT NULL
)
SELECT queue, min(due_at)
FROM (
    SELECT waiting.queue, first.due_at
    FROM waiting, generate_series(0, 9) AS urgency (priority), LATERAL (
        SELECT due_at FROM penstock.jobs
        WHERE jobs.queue = waiting.queue AND place = 1
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
