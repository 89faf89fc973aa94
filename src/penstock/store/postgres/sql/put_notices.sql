-- The newest counts; of two told at one instant, the larger: the same one for everybody, in whatever order they come.
-- By name, so that two that tell the same cannot wait for each other.
INSERT INTO penstock.notices AS kept (kind, name, told_at, value)
SELECT DISTINCT ON (kind, name) kind, name, told_at, value
FROM unnest(%(kinds)s::text[], %(names)s::text[], %(told)s::bigint[], %(values)s::bytea[]) AS n (kind, name, told_at, value)
ORDER BY kind, name, told_at DESC, coalesce(value, '') DESC
ON CONFLICT (kind, name) DO UPDATE SET told_at = excluded.told_at, value = excluded.value
WHERE (excluded.told_at, coalesce(excluded.value, '')) > (kept.told_at, coalesce(kept.value, ''))
