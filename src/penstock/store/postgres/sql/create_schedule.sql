-- The primary key of schedules: one that exists stays as it is, and nothing comes back. admission_pkey: a shard that is closed,
-- or goes by another ring than the schedule was placed by, takes none.
INSERT INTO penstock.schedules (
    name, version, paused, after_completion, end_at, next_tick_at, pending_tick_at, last_tick_at, intention
)
SELECT
    %(name)s, %(version)s, %(paused)s, %(after_completion)s, %(end_at)s, %(next_tick_at)s, %(pending_tick_at)s,
    %(last_tick_at)s, %(intention)s
FROM penstock.admission
WHERE id = 1 AND NOT closed AND coalesce(ring = %(ring)s::bigint, true)
ON CONFLICT DO NOTHING
RETURNING
    -- include schedule
