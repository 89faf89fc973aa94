-- ticketed: the first to get its ticket has about waited longest; unticketed: the oldest of each type and priority.
SELECT queue, min(due_at)
FROM (
    SELECT waiting.queue, min(
        coalesce((
            SELECT due_at FROM jobs INDEXED BY ticketed
            WHERE jobs.queue = waiting.queue AND state = 'queued' AND ticket_until IS NOT NULL
            ORDER BY ticket_until, seq LIMIT 1
        ), 9223372036854775807),
        coalesce((
            SELECT min((
                SELECT due_at FROM jobs INDEXED BY unticketed
                WHERE jobs.queue = waiting.queue AND jobs.type = waiting.type
                  AND state = 'queued' AND ticket_until IS NULL AND priority = priorities.column1
                ORDER BY seq LIMIT 1
            ))
            FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS priorities
        ), 9223372036854775807)
    ) AS due_at
    FROM counts AS waiting
    WHERE waiting.state = 'queued' AND waiting.jobs > 0
)
GROUP BY queue
