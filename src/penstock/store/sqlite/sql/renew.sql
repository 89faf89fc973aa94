-- by_id. The fence guards a job that was taken back or ended meanwhile against its former owner.
WITH held (id, fence, lease_until, progress, begun) AS MATERIALIZED (VALUES (?,?,?,?,?))
UPDATE jobs INDEXED BY by_id
SET lease_until = held.lease_until,
    progress = coalesce(held.progress, jobs.progress),
    begun = max(jobs.begun, held.begun)
FROM held
WHERE jobs.id = held.id
  AND jobs.fence = held.fence
  AND state = 'running'
RETURNING id, cancel_requested_at
