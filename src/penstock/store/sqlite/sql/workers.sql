-- workers_by_age, from its end: those that were not seen for longer are not read.
SELECT reported, seen_at FROM workers
WHERE seen_at > :after AND seen_at <= :until
ORDER BY seen_at DESC LIMIT :limit
