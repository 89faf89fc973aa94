-- parked_pkey
SELECT job, version, state, attempts, due_at, error, event
FROM penstock.parked
WHERE subscription = %(subscription)s AND job = ANY (%(jobs)s::uuid[]) AND state = 'waiting'
ORDER BY job, version
