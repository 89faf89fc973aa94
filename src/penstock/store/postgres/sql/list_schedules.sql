-- The primary key of schedules, in its order.
SELECT
    -- include schedule
FROM penstock.schedules
WHERE name > %(after)s
ORDER BY name
LIMIT %(limit)s
