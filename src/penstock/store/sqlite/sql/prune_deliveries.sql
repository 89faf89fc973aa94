-- deliveries_by_age, from its beginning.
DELETE FROM deliveries
WHERE seq IN (SELECT seq FROM deliveries INDEXED BY deliveries_by_age WHERE at <= :until ORDER BY at LIMIT :limit)
