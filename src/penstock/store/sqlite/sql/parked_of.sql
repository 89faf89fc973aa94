-- parked_by_job
SELECT job, version, state, attempts, due_at, error, event
FROM parked INDEXED BY parked_by_job
WHERE subscription = :subscription AND job IN carray(:jobs) AND state = 'waiting'
