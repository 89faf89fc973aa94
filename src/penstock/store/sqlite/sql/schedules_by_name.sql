-- schedules_by_name
SELECT
    -- include schedule
FROM schedules INDEXED BY schedules_by_name
WHERE name IN carray(:names)
