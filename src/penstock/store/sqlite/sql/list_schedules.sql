-- schedules_by_name, in its order.
SELECT version, paused, next_tick_at, pending_tick_at, last_tick_at, intention
FROM schedules INDEXED BY schedules_by_name
WHERE name > :after
ORDER BY name
LIMIT :limit
