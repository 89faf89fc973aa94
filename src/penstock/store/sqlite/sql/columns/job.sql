-- The columns of a whole job, in the order in which `rows.job_of` reads them.
seq, id, type, queue, state, priority, attempt, fence, losses, due_at, created_at, started_at, completed_at,
expires_at, cancel_requested_at, timeout, worker, reason, retry_of, retry, tags, progress, error, inputs, outputs,
params_object, result_object, params, result, schedule, tick_at, interval, version
