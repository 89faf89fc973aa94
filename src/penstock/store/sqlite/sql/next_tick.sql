-- ticking
SELECT min(next_tick_at) FROM schedules INDEXED BY ticking WHERE NOT paused AND next_tick_at IS NOT NULL
