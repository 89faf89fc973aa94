-- parked_due, in its order, up to an instant.
SELECT job, version, state, attempts, due_at, error, event
FROM penstock.parked
WHERE subscription = %(subscription)s AND state = %(state)s AND due_at < %(before)s
ORDER BY due_at, job, version
LIMIT %(limit)s
