-- The guard: no newer notice was written since the one that this decision is based on.
INSERT INTO notices (kind, name, told_at, value) VALUES (:kind, :name, :told_at, :value)
ON CONFLICT DO UPDATE SET told_at = excluded.told_at, value = excluded.value
WHERE notices.told_at <= :known_at
RETURNING 1
