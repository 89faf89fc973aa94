-- The newest counts; of two told at one instant, the larger: the same one for everybody, in whatever order they come.
INSERT INTO notices (kind, name, told_at, value) VALUES (:kind, :name, :told_at, :value)
ON CONFLICT DO UPDATE SET told_at = excluded.told_at, value = excluded.value
WHERE (excluded.told_at, coalesce(excluded.value, x'')) > (notices.told_at, coalesce(notices.value, x''))
