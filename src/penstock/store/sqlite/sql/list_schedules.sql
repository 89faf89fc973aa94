-- schedules_by_name, in its order.
SELECT
    -- include schedule
FROM schedules INDEXED BY schedules_by_name
WHERE name > :after
ORDER BY name
LIMIT :limit
