-- unticketed: highest priority first, then oldest (seq ends the index). NOT INDEXED: the outer part goes by seq alone.
-- The ticket guard is repeated: a job whose ticket is out gets no second one before the first has lapsed.
-- Expired jobs are passed over; their reaper is about to end them.
UPDATE jobs NOT INDEXED
SET ticket_until = :ticket_until
WHERE seq IN (
    SELECT seq FROM jobs INDEXED BY unticketed
    WHERE queue = :queue AND type = :type AND state = 'queued' AND ticket_until IS NULL
      AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY priority DESC, seq
    LIMIT :room
)
AND state = 'queued' AND ticket_until IS NULL
RETURNING id, priority, seq
