-- ticking, pending, completing: each in its own order, so that no more than the limit is read of what is due.
-- active_of says whether a job has not ended, completed_of when the last one did.
-- A schedule that is past its end has no completion to wait for.
WITH due (seq, at) AS MATERIALIZED (
    SELECT seq, min(at) FROM (
        SELECT * FROM (
            SELECT seq, next_tick_at AS at FROM schedules INDEXED BY ticking
            WHERE NOT paused AND next_tick_at IS NOT NULL AND next_tick_at < :before
            ORDER BY next_tick_at
            LIMIT :limit
        )
        UNION ALL
        SELECT * FROM (
            SELECT seq, pending_tick_at FROM schedules INDEXED BY pending
            WHERE NOT paused AND pending_tick_at IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM jobs INDEXED BY active_of
                WHERE schedule = schedules.name AND schedule IS NOT NULL AND completed_at IS NULL
            )
            ORDER BY pending_tick_at
            LIMIT :limit
        )
        UNION ALL
        SELECT * FROM (
            SELECT seq, coalesce(last_tick_at, 0) FROM schedules INDEXED BY completing
            WHERE NOT paused AND after_completion AND next_tick_at IS NULL
              AND (end_at IS NULL OR end_at > :before) AND NOT EXISTS (
                SELECT 1 FROM jobs INDEXED BY active_of
                WHERE schedule = schedules.name AND schedule IS NOT NULL AND completed_at IS NULL
            )
            ORDER BY last_tick_at
            LIMIT :limit
        )
    )
    GROUP BY seq
)
SELECT
    -- include schedule,
    (
        SELECT json_group_array(hex(id)) FROM (
            SELECT id FROM jobs INDEXED BY active_of
            WHERE schedule = schedules.name AND schedule IS NOT NULL AND completed_at IS NULL
            ORDER BY seq
            LIMIT :active_limit
        )
    ),
    (
        SELECT max(completed_at) FROM jobs INDEXED BY completed_of
        WHERE schedule = schedules.name AND schedule IS NOT NULL AND completed_at IS NOT NULL
    )
FROM due CROSS JOIN schedules ON schedules.seq = due.seq
ORDER BY due.at, name
LIMIT :limit
