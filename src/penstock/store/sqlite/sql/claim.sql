-- by_id. State guards against late and doubled tickets; expires_at against starting an expired job.
WITH wanted (id, worker, lease_until, claimed_at) AS MATERIALIZED (VALUES (?,?,?,?))
UPDATE jobs INDEXED BY by_id
SET state = 'running',
    ticket_until = NULL,
    attempt = attempt + 1,
    fence = max(fence, ((SELECT epoch FROM admission WHERE id = 1) << 22) + (fence & 4194303)) + 1,
    worker = wanted.worker,
    lease_until = wanted.lease_until,
    started_at = wanted.claimed_at,
    begun = 0,
    version = version + 1
FROM wanted
WHERE jobs.id = wanted.id
  AND state = 'queued'
  AND (expires_at IS NULL OR expires_at > wanted.claimed_at)
RETURNING
    -- include moved,
    max(0, started_at - due_at),
    -- include claim
