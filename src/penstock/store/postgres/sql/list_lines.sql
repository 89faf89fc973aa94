-- live_lines and ended_lines: each line from its newest, a page of each, and of those the newest. The partitions of what
-- has ended are merged by their indexes.
SELECT seq, id
FROM (
    SELECT live.id, live.seq
    FROM unnest(%(live_queues)s::text[], %(live_types)s::text[]) AS line (queue, type)
    CROSS JOIN LATERAL (
        SELECT id, seq FROM penstock.jobs
        WHERE jobs.queue = line.queue AND jobs.type = line.type AND jobs.seq < %(before)s
          AND (%(state)s::text IS NULL OR jobs.state = %(state)s)
        ORDER BY jobs.seq DESC
        LIMIT %(limit)s
    ) AS live
    UNION ALL
    SELECT over.id, over.seq
    FROM unnest(%(ended_queues)s::text[], %(ended_types)s::text[], %(ended_states)s::text[]) AS line (queue, type, state)
    CROSS JOIN LATERAL (
        SELECT id, seq FROM penstock.ended
        WHERE ended.queue = line.queue AND ended.type = line.type AND ended.state = line.state
          AND ended.seq < %(before)s
        ORDER BY ended.seq DESC
        LIMIT %(limit)s
    ) AS over
) AS picked
ORDER BY seq DESC
LIMIT %(limit)s
