-- expiring: the earliest first, with the state that the move starts from.
SELECT seq, state FROM jobs INDEXED BY expiring
WHERE state IN ('scheduled', 'queued') AND expires_at IS NOT NULL AND expires_at <= :now
ORDER BY expires_at
LIMIT :limit
