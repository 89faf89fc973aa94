-- The primary key of schedules, in its order.
SELECT version, paused, next_tick_at, pending_tick_at, last_tick_at, intention
FROM penstock.schedules
WHERE name > %(after)s
ORDER BY name
LIMIT %(limit)s
