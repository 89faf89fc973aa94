-- What every submission gives of a job, in the order of the arrays.
id, type, queue, priority, due_at, delay, expires_at, ticket_for, timeout, owns_objects, retry_of, retry, tags,
inputs, params_object, params, schedule, tick_at, "interval"
