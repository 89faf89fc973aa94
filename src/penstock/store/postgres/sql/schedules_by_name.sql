-- The primary key of schedules.
SELECT
    -- include schedule
FROM penstock.schedules
WHERE name = ANY(%(names)s)
