-- unticketed: highest priority first, then oldest (seq ends the index). NOT INDEXED: the outer part goes by seq alone.
-- State and ticket are compared again: only jobs that are still queued without a ticket are claimed.
-- Expired jobs are passed over; their reaper is about to end them.
UPDATE jobs NOT INDEXED
SET state = 'running',
    attempt = attempt + 1,
    fence = max(fence, ((SELECT epoch FROM admission WHERE id = 1) << 22) + (fence & 4194303)) + 1,
    worker = :worker,
    lease_until = :lease_until,
    started_at = :now,
    begun = 0,
    version = version + 1
WHERE seq IN (
    SELECT seq FROM jobs INDEXED BY unticketed
    WHERE queue = :queue AND type = :type AND priority >= :least AND state = 'queued' AND ticket_until IS NULL
      AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY priority DESC, seq
    LIMIT :room
)
AND state = 'queued' AND ticket_until IS NULL
RETURNING
    -- include moved,
    max(0, started_at - due_at),
    -- include claim,
    seq
