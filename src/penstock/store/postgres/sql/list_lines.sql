-- later_lines, unticketed by its priorities, away, and ended_lines: each queue and type from its newest, a page of each, and of those
-- the newest. The partitions of what has ended are merged by their indexes.
WITH picked AS MATERIALIZED (
    SELECT later.id, later.seq
    FROM unnest(%(later_queues)s::text[], %(later_types)s::text[]) AS line (queue, type)
    CROSS JOIN LATERAL (
        SELECT id, seq FROM penstock.jobs
        WHERE place = 0 AND jobs.queue = line.queue AND jobs.type = line.type AND jobs.seq < %(before)s
        ORDER BY jobs.seq DESC
        LIMIT %(limit)s
    ) AS later
    UNION ALL
    SELECT waiting.id, waiting.seq
    FROM unnest(%(waiting_queues)s::text[], %(waiting_types)s::text[]) AS line (queue, type)
    CROSS JOIN generate_series(0, 9) AS urgency (priority)
    CROSS JOIN LATERAL (
        SELECT id, seq FROM penstock.jobs
        WHERE place = 1 AND jobs.queue = line.queue AND jobs.type = line.type
          AND jobs.priority = urgency.priority::smallint AND jobs.seq < %(before)s
        ORDER BY jobs.seq DESC
        LIMIT %(limit)s
    ) AS waiting
    UNION ALL
    SELECT away.id, away.seq
    FROM (
        SELECT id, seq FROM penstock.jobs
        WHERE place = 2 AND jobs.seq < %(before)s AND jobs.state = ANY (%(away)s::text[])
          AND (%(type)s::text IS NULL OR jobs.type = %(type)s) AND (%(queue)s::text IS NULL OR jobs.queue = %(queue)s)
        ORDER BY jobs.seq DESC
        LIMIT %(limit)s
    ) AS away
    UNION ALL
    SELECT over.id, over.seq
    FROM unnest(%(ended_queues)s::text[], %(ended_types)s::text[], %(ended_states)s::text[]) AS line (queue, type, state)
    CROSS JOIN LATERAL (
        SELECT id, seq FROM penstock.ended
        WHERE hashtextextended(ended.queue || ' ' || ended.type || ' ' || ended.state, 0)
            = hashtextextended(line.queue || ' ' || line.type || ' ' || line.state, 0)
          AND ended.queue = line.queue AND ended.type = line.type AND ended.state = line.state
          AND ended.seq < %(before)s
        ORDER BY ended.seq DESC
        LIMIT %(limit)s
    ) AS over
)
SELECT seq, id FROM picked
ORDER BY seq DESC
LIMIT %(limit)s
