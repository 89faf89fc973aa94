-- workers_by_age, from its beginning.
DELETE FROM workers
WHERE id IN (SELECT id FROM workers WHERE seen_at < :before ORDER BY seen_at LIMIT :limit)
RETURNING reported, seen_at
