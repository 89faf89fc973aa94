-- The columns that every submission writes, in the order of its values.
id, type, queue, state, priority, due_at, created_at, expires_at, ticket_until, timeout, owns_objects, retry_of,
retry, tags, inputs, params_object, params, schedule, tick_at, "interval"
