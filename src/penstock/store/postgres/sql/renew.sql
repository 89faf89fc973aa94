-- jobs_pkey, in the order of the ids. The fence guards a job that was taken back or ended meanwhile against its former
-- owner. No index holds what is written.
WITH clock AS MATERIALIZED (SELECT * FROM penstock.fenced_clock(%(now)s)),
held AS MATERIALIZED (
    SELECT * FROM unnest(
        (SELECT %(ids)s::uuid[]), (SELECT %(fences)s::bigint[]), (SELECT %(leases)s::bigint[]),
        (SELECT %(progress)s::text[]), (SELECT %(begun)s::boolean[])
    ) WITH ORDINALITY AS held (id, fence, lease, progress, begun, n)
)
UPDATE penstock.jobs
SET lease_until = clock.now + held.lease,
    progress = coalesce(held.progress, jobs.progress),
    begun = jobs.begun OR held.begun
FROM held, clock
WHERE jobs.id = ANY (ARRAY[held.id])
  AND jobs.fence = held.fence
  AND state = 'running'
RETURNING n, cancel_requested_at
