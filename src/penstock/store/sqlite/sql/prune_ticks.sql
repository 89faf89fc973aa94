-- ticks_by_age: about as many as the limit, the oldest first. The last instant goes entirely: by its schedules, the
-- planner would rather read the whole history of each.
DELETE FROM ticks INDEXED BY ticks_by_age
WHERE tick_at <= coalesce(
    (
        SELECT tick_at FROM ticks INDEXED BY ticks_by_age
        WHERE tick_at <= :until
        ORDER BY tick_at
        LIMIT 1 OFFSET :limit
    ),
    :until
)
