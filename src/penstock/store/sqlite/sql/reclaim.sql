-- leases: those that ran out first. NOT INDEXED: the outer part goes by seq alone.
-- State and lease are repeated: a lease renewed meanwhile is not taken away.
-- fence + 1 locks the lost owner out; a mark decides before poison does. Only a job that was alone in its worker, and had
-- begun, is surely the one that took it down.
UPDATE jobs NOT INDEXED
SET state = lost.outcome,
    reason = CASE lost.outcome WHEN 'cancelled' THEN 'cancel requested' WHEN 'failed' THEN 'poison' END,
    error = iif(
        lost.outcome = 'failed',
        json_object(
            'code', 'worker_lost',
            'message', 'worker ' || worker || ' was lost while it ran this job and no other; ' || losses || ' processes died under it before',
            'attempt', attempt
        ),
        error
    ),
    completed_at = iif(lost.outcome = 'queued', NULL, :now),
    worker = iif(lost.outcome = 'queued', NULL, worker),
    started_at = iif(lost.outcome = 'queued', NULL, started_at),
    progress = iif(lost.outcome = 'queued', NULL, progress),
    version = version + 1,
    lease_until = NULL,
    attempt = attempt - 1,
    losses = losses + begun,
    alone_in_worker = alone_in_worker OR (begun AND losses + 1 >= :suspect),
    fence = fence + 1
FROM (
    SELECT seq AS place,
        CASE
            WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
            WHEN begun AND alone_in_worker AND losses + 1 >= :poison THEN 'failed'
            ELSE 'queued'
        END AS outcome
    FROM jobs INDEXED BY leases
    WHERE state = 'running' AND lease_until <= :now
    ORDER BY lease_until
    LIMIT :limit
) AS lost
WHERE seq = lost.place AND state = 'running' AND lease_until <= :now
RETURNING
    -- include moved
