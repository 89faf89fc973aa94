-- jobs_pkey, ended_pkey. One statement is one snapshot: a job that is just ending is in one of them, and only one.
-- `first` and `last` leave out all partitions but those between them; each id is then looked up in its own alone: LIMIT
-- keeps the planner from reading all that is between.
SELECT seq, id, type, queue, state, priority, attempt, fence, losses, due_at, created_at, started_at, NULL::bigint AS completed_at,
    expires_at, cancel_requested_at, timeout, worker, reason, retry_of, retry, tags, progress, error, inputs, NULL AS outputs,
    params_object, NULL AS result_object, params, NULL::bytea AS result, schedule, tick_at, "interval", version
FROM penstock.jobs
WHERE id = ANY (%(ids)s::uuid[])
UNION ALL
SELECT over.*
FROM unnest(%(ids)s::uuid[]) AS asked (asked)
CROSS JOIN LATERAL (
    SELECT seq, id, type, queue, state, priority, attempt, (epoch::bigint << 22) + fence AS fence, losses, due_at, created_at,
        started_at, completed_at,
        expires_at, cancel_requested_at, timeout, worker, reason, retry_of, retry, tags, progress, error, inputs, outputs,
        params_object, result_object, params, result, schedule, tick_at, "interval", version
    FROM penstock.ended
    WHERE ended.id = asked AND ended.id BETWEEN %(first)s::uuid AND %(last)s::uuid
    LIMIT 1
) AS over
