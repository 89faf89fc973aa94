-- by_id. Waiting jobs end here and now; running ones are marked once, or ended with fence + 1 so that their owner
-- can write nothing more. What has ended is not matched.
UPDATE jobs INDEXED BY by_id
SET state = iif(state = 'running' AND NOT :force, 'running', 'cancelled'),
    reason = iif(state = 'running' AND NOT :force, reason, 'cancel requested'),
    completed_at = iif(state = 'running' AND NOT :force, NULL, :now),
    lease_until = iif(state = 'running' AND NOT :force, lease_until, NULL),
    cancel_requested_at = coalesce(cancel_requested_at, :now),
    fence = fence + (state = 'running' AND :force),
    ticket_until = NULL,
    version = version + 1
WHERE id IN carray(:ids)
  AND (state IN ('scheduled', 'queued') OR (state = 'running' AND (:force OR cancel_requested_at IS NULL)))
RETURNING
    -- include moved
