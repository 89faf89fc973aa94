-- The columns of a whole schedule, in the order in which `schedules` reads them.
version, paused, next_tick_at, pending_tick_at, last_tick_at, intention
