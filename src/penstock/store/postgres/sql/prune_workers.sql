-- workers_by_age, from its beginning. Locked first: a worker that is seen meanwhile is passed over.
WITH old AS MATERIALIZED (
    SELECT id FROM penstock.workers WHERE seen_at < %(before)s
    ORDER BY seen_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM penstock.workers WHERE id = ANY (ARRAY(SELECT id FROM old))
RETURNING reported, seen_at
