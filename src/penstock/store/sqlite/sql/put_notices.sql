-- The newest notice wins; of two of the same instant the larger value, so that the order of arrival does not matter.
INSERT INTO notices (kind, name, told_at, value) VALUES (:kind, :name, :told_at, :value)
ON CONFLICT DO UPDATE SET told_at = excluded.told_at, value = excluded.value
WHERE (excluded.told_at, coalesce(excluded.value, x'')) > (notices.told_at, coalesce(notices.value, x''))
