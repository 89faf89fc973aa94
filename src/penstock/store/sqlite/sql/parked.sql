-- parked_by_time, in its order.
SELECT job, version, state, attempts, due_at, error, event
FROM parked
WHERE subscription = :subscription AND state = :state AND due_at < :before
ORDER BY due_at, job, version
LIMIT :limit
