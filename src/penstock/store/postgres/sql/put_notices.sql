-- The newest notice wins; of two of the same instant the larger value, so that the order of arrival does not matter.
-- Ordered by name, so that two transactions with the same notices cannot deadlock.
INSERT INTO penstock.notices AS kept (kind, name, told_at, value)
SELECT DISTINCT ON (kind, name) kind, name, told_at, value
FROM unnest(%(kinds)s::text[], %(names)s::text[], %(told)s::bigint[], %(values)s::bytea[]) AS n (kind, name, told_at, value)
ORDER BY kind, name, told_at DESC, coalesce(value, '') DESC
ON CONFLICT (kind, name) DO UPDATE SET told_at = excluded.told_at, value = excluded.value
WHERE (excluded.told_at, coalesce(excluded.value, '')) > (kept.told_at, coalesce(kept.value, ''))
