-- parked_due, in its order. Without a bound those that wait behind another event come last.
SELECT job, version, state, attempts, due_at, error, event
FROM penstock.parked
WHERE subscription = %(subscription)s AND state = %(state)s
ORDER BY due_at, job, version
LIMIT %(limit)s
