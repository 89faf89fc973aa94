-- parked_pkey, in the order of the keys: two writers never wait for each other. An event that is parked gets the new values.
INSERT INTO penstock.parked (subscription, job, version, state, attempts, due_at, error, event)
SELECT %(subscription)s, *
FROM unnest(
    %(jobs)s::uuid[], %(versions)s::bigint[], %(states)s::text[], %(attempts)s::bigint[], %(due)s::bigint[],
    %(errors)s::text[], %(events)s::bytea[]
) AS parked (job, version, state, attempts, due_at, error, event)
ORDER BY job, version
ON CONFLICT (subscription, job, version) DO UPDATE
SET state = excluded.state,
    attempts = excluded.attempts,
    due_at = excluded.due_at,
    error = excluded.error,
    event = excluded.event
