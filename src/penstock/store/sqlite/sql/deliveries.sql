-- deliveries_of, backwards.
SELECT at, delivered, first, last, events, attempt, status, took, detail
FROM deliveries
WHERE subscription = :subscription AND at < :before
ORDER BY at DESC, seq DESC
LIMIT :limit
