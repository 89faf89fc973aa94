-- schedules_by_name. The version guards a change made meanwhile; it grows here, so that every plan made before is stale.
-- last_tick_at is the ticks' own: one that was decided meanwhile is not forgotten.
UPDATE schedules INDEXED BY schedules_by_name
SET version = version + 1,
    paused = :paused,
    after_completion = :after_completion,
    end_at = :end_at,
    next_tick_at = :next_tick_at,
    pending_tick_at = :pending_tick_at,
    intention = :intention
WHERE name = :name AND version = :expected_version
RETURNING
    -- include schedule
