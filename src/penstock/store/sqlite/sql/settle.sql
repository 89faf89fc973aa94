-- by_id. The fence lets only the newest claim write an outcome; the state lets it do so once.
-- A retry of a job marked for cancelling is cancelled here, so that no attempt starts after the mark.
-- What ended by itself, and killed no process, is under suspicion no longer.
-- An error stays until another replaces it: it tells of the last attempt that errored, whatever came after.
WITH outcome (id, fence, state, settled_at, due_at, loss, reason, error, result, result_object, outputs, owns_objects)
AS MATERIALIZED (VALUES (?,?,?,?,?,?,?,?,?,?,?,?))
UPDATE jobs INDEXED BY by_id
SET state = iif(outcome.state = 'scheduled' AND cancel_requested_at IS NOT NULL, 'cancelled', outcome.state),
    reason = iif(
        outcome.state = 'scheduled' AND cancel_requested_at IS NOT NULL, 'cancel requested', outcome.reason
    ),
    due_at = coalesce(outcome.due_at, jobs.due_at),
    completed_at = iif(outcome.state = 'scheduled' AND cancel_requested_at IS NULL, NULL, outcome.settled_at),
    version = version + 1,
    lease_until = NULL,
    worker = iif(outcome.state = 'scheduled' AND cancel_requested_at IS NULL, NULL, worker),
    started_at = iif(outcome.state = 'scheduled' AND cancel_requested_at IS NULL, NULL, started_at),
    progress = iif(outcome.state = 'scheduled' AND cancel_requested_at IS NULL, NULL, progress),
    losses = losses + outcome.loss,
    alone = min(alone, outcome.loss),
    alone_in_worker = min(alone_in_worker, outcome.loss),
    error = coalesce(outcome.error, jobs.error),
    result = outcome.result,
    result_object = outcome.result_object,
    outputs = outcome.outputs,
    owns_objects = max(jobs.owns_objects, outcome.owns_objects)
FROM outcome
WHERE jobs.id = outcome.id
  AND jobs.fence = outcome.fence
  AND jobs.state = 'running'
RETURNING
    -- include moved,
    completed_at - started_at
