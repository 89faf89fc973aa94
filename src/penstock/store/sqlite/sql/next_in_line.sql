-- unticketed: its first entry that has not expired.
SELECT priority, seq FROM jobs INDEXED BY unticketed
WHERE queue = :queue AND type = :type AND state = 'queued' AND ticket_until IS NULL
  AND (expires_at IS NULL OR expires_at > :now)
ORDER BY priority DESC, seq
LIMIT 1
