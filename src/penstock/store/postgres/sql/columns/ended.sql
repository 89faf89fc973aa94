-- The columns of a job that ends, in the order in which the statements that end jobs write them.
id, seq, due_at, created_at, started_at, completed_at, expires_at, cancel_requested_at, timeout, tick_at, "interval",
attempt, fence, epoch, losses, priority, owns_objects, retry_of, state, type, queue, worker, reason, idempotency_key,
anchor, schedule, retry, tags, progress, error, inputs, outputs, params_object, result_object, params, result, version
