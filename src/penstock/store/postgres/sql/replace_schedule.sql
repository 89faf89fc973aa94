-- The primary key of schedules. The version guards a change made meanwhile; it grows here, so that every plan made before
-- is stale. last_tick_at is the ticks' own: one that was decided meanwhile is not forgotten.
UPDATE penstock.schedules
SET version = version + 1,
    paused = %(paused)s,
    after_completion = %(after_completion)s,
    end_at = %(end_at)s,
    next_tick_at = %(next_tick_at)s,
    pending_tick_at = %(pending_tick_at)s,
    intention = %(intention)s
WHERE name = %(name)s AND version = %(expected_version)s
RETURNING
    -- include schedule
