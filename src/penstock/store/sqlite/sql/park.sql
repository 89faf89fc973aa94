-- parked_by_job. The WHERE drops the rows that only fill up the VALUES.
INSERT INTO parked (subscription, job, version, state, attempts, due_at, error, event)
SELECT * FROM (VALUES (?,?,?,?,?,?,?,?))
WHERE column1 IS NOT NULL
ON CONFLICT (subscription, job, version) DO UPDATE SET
    state = excluded.state,
    attempts = excluded.attempts,
    due_at = excluded.due_at,
    error = excluded.error,
    event = excluded.event
