-- ticking, pending, completing: each in its own order, so that no more than the limit is read of what is due.
-- active_of says whether a job has not ended, completed_of when the last one did.
-- A schedule that is past its end has no completion to wait for.
WITH due AS MATERIALIZED (
    SELECT name, min(at) AS at FROM (
        (
            SELECT name, next_tick_at AS at FROM penstock.schedules
            WHERE NOT paused AND next_tick_at IS NOT NULL AND next_tick_at < %(before)s
            ORDER BY next_tick_at
            LIMIT %(limit)s
        )
        UNION ALL
        (
            SELECT name, pending_tick_at FROM penstock.schedules
            WHERE NOT paused AND pending_tick_at IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM penstock.jobs WHERE schedule = schedules.name AND schedule IS NOT NULL)
            ORDER BY pending_tick_at
            LIMIT %(limit)s
        )
        UNION ALL
        (
            SELECT name, coalesce(last_tick_at, 0) FROM penstock.schedules
            WHERE NOT paused AND after_completion AND next_tick_at IS NULL
              AND (end_at IS NULL OR end_at > %(before)s)
              AND NOT EXISTS (SELECT 1 FROM penstock.jobs WHERE schedule = schedules.name AND schedule IS NOT NULL)
            ORDER BY last_tick_at
            LIMIT %(limit)s
        )
    ) AS reasons
    GROUP BY name
)
SELECT
    -- include schedule,
    ARRAY(
        SELECT id FROM penstock.jobs
        WHERE schedule = schedules.name AND schedule IS NOT NULL
        ORDER BY seq
        LIMIT %(active_limit)s
    ),
    (SELECT max(completed_at) FROM penstock.ended WHERE schedule = schedules.name AND schedule IS NOT NULL)
FROM due
JOIN penstock.schedules USING (name)
ORDER BY due.at, name
LIMIT %(limit)s
