-- schedules_by_name
SELECT version, paused, next_tick_at, pending_tick_at, last_tick_at, intention
FROM schedules INDEXED BY schedules_by_name
WHERE name IN carray(:names)
