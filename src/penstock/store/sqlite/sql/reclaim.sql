-- leases: those that ran out first. NOT INDEXED: the outer part goes by seq alone.
-- State and lease are repeated: a lease renewed meanwhile is not taken away.
-- fence + 1 locks the lost owner out; a mark decides before poison does.
UPDATE jobs NOT INDEXED
SET state = CASE
        WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
        WHEN losses + 1 >= :poison_losses THEN 'failed'
        ELSE 'queued'
    END,
    reason = CASE
        WHEN cancel_requested_at IS NOT NULL THEN 'cancel requested'
        WHEN losses + 1 >= :poison_losses THEN 'poison'
    END,
    error = iif(
        cancel_requested_at IS NULL AND losses + 1 >= :poison_losses,
        json_object('code', 'worker_lost', 'message', 'worker ' || worker || ' stopped renewing its lease, as ' || losses || ' others did before it',
                    'attempt', attempt),
        error
    ),
    completed_at = iif(cancel_requested_at IS NULL AND losses + 1 < :poison_losses, NULL, :now),
    worker = iif(cancel_requested_at IS NULL AND losses + 1 < :poison_losses, NULL, worker),
    started_at = iif(cancel_requested_at IS NULL AND losses + 1 < :poison_losses, NULL, started_at),
    progress = iif(cancel_requested_at IS NULL AND losses + 1 < :poison_losses, NULL, progress),
    lease_until = NULL,
    attempt = attempt - 1,
    losses = losses + 1,
    fence = fence + 1
WHERE seq IN (
    SELECT seq FROM jobs INDEXED BY leases
    WHERE state = 'running' AND lease_until <= :now
    ORDER BY lease_until
    LIMIT :limit
)
AND state = 'running' AND lease_until <= :now
RETURNING id, type, queue, state, fence, attempt, reason
