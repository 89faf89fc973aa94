-- The primary key of schedules.
SELECT version, paused, next_tick_at, pending_tick_at, last_tick_at, intention
FROM penstock.schedules
WHERE name = ANY(%(names)s)
