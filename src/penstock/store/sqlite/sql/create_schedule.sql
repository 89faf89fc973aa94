-- schedules_by_name: one that exists stays as it is, and nothing comes back.
INSERT INTO schedules (
    name, version, paused, after_completion, end_at, next_tick_at, pending_tick_at, last_tick_at, intention
)
VALUES (
    :name, :version, :paused, :after_completion, :end_at, :next_tick_at, :pending_tick_at, :last_tick_at, :intention
)
ON CONFLICT DO NOTHING
RETURNING
    -- include schedule
