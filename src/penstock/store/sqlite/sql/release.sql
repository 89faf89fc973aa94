-- by_id. The fence guards the next owner's lease against a late release of the last one.
WITH given_back (id, fence, suspect, released_at, due_at) AS MATERIALIZED (VALUES (?,?,?,?,?))
UPDATE jobs INDEXED BY by_id
SET state = CASE
        WHEN cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN given_back.due_at IS NULL THEN 'queued' ELSE 'scheduled'
    END,
    due_at = iif(cancel_requested_at IS NULL, coalesce(given_back.due_at, jobs.due_at), jobs.due_at),
    reason = iif(cancel_requested_at IS NULL, NULL, 'cancel requested'),
    completed_at = iif(cancel_requested_at IS NULL, NULL, given_back.released_at),
    version = version + 1,
    lease_until = NULL,
    worker = iif(cancel_requested_at IS NULL, NULL, worker),
    started_at = iif(cancel_requested_at IS NULL, NULL, started_at),
    progress = iif(cancel_requested_at IS NULL, NULL, progress),
    attempt = attempt - 1,
    alone = max(alone, given_back.suspect)
FROM given_back
WHERE jobs.id = given_back.id
  AND jobs.fence = given_back.fence
  AND state = 'running'
RETURNING
    -- include moved
