-- The table's own b-tree. State and time are repeated: what has been claimed meanwhile runs on.
UPDATE jobs NOT INDEXED
SET state = 'expired', reason = 'not started before expires_at', completed_at = :now, ticket_until = NULL,
    version = version + 1
WHERE seq IN carray(:seqs)
  AND state IN ('scheduled', 'queued') AND expires_at <= :now
RETURNING
    -- include moved,
    seq
