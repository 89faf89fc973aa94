-- parked_pkey, and not parked_due, whatever the planner knows of states.
SELECT job, version, state, attempts, due_at, error, event
FROM penstock.parked
WHERE subscription = %(subscription)s AND job = ANY (%(jobs)s::uuid[]) AND (state = 'waiting') IS TRUE
ORDER BY job, version
