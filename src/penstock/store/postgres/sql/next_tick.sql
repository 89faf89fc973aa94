-- ticking, from its left end.
SELECT min(next_tick_at) FROM penstock.schedules WHERE NOT paused AND next_tick_at IS NOT NULL
