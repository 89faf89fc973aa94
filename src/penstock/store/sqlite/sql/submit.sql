-- ON CONFLICT guards key and id (by_key, by_id): one that exists leaves its row as it is, and the caller reads it.
-- The WHERE drops the rows that only fill up the VALUES.
INSERT INTO jobs (
    id, type, queue, state, priority, due_at, created_at, expires_at, ticket_until, timeout,
    owns_objects, idempotency_key, fingerprint, retry_of, retry, tags, inputs, params_object, params,
    schedule, tick_at, interval, anchor
)
SELECT * FROM (VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?))
WHERE column1 IS NOT NULL
ON CONFLICT DO NOTHING
