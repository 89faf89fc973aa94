-- jobs_pkey and ended_pkey guard the id: one that is there leaves its row as it is, and the caller reads it.
-- No partition is opened but those from `first` to `last` of the ids.
-- That is asked row by row, not joined, so that the rows keep their order and get their seq in it.
-- Each array stands in a subquery, so that the plan never depends on how many values it holds.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
asked AS MATERIALIZED (
    SELECT asked.*, clock.now, coalesce(asked.due_at, clock.now + coalesce(asked.delay, 0)) AS falls_due_at
    FROM clock, unnest(
        (SELECT %(ids)s::uuid[]), (SELECT %(types)s::text[]), (SELECT %(queues)s::text[]),
        (SELECT %(priorities)s::bigint[]), (SELECT %(due)s::bigint[]), (SELECT %(delays)s::bigint[]),
        (SELECT %(expires)s::bigint[]), (SELECT %(tickets)s::bigint[]), (SELECT %(timeouts)s::bigint[]),
        (SELECT %(owning)s::boolean[]), (SELECT %(retried)s::uuid[]), (SELECT %(retries)s::text[]),
        (SELECT %(tags)s::text[]), (SELECT %(inputs)s::text[]), (SELECT %(objects)s::text[]),
        (SELECT %(params)s::bytea[]), (SELECT %(schedules)s::text[]), (SELECT %(ticks)s::bigint[]),
        (SELECT %(intervals)s::bigint[])
    ) AS asked (
        id, type, queue, priority, due_at, delay, expires_at, ticket_for, timeout, owns_objects, retry_of, retry, tags,
        inputs, params_object, params, schedule, tick_at, "interval"
    )
),
inserted AS (
    INSERT INTO penstock.jobs (
        id, type, queue, state, priority, due_at, created_at, expires_at, ticket_until, timeout, owns_objects, retry_of,
        retry, tags, inputs, params_object, params, schedule, tick_at, "interval"
    )
    SELECT id, type, queue, CASE WHEN falls_due_at <= now THEN 'queued' ELSE 'scheduled' END, priority, falls_due_at,
        now, expires_at, CASE WHEN falls_due_at <= now THEN now + ticket_for END, timeout,
        coalesce(owns_objects, false), retry_of, retry, tags, inputs, params_object, params, schedule, tick_at,
        "interval"
    FROM asked
    WHERE (
        SELECT true FROM penstock.ended
        WHERE ended.id = asked.id AND ended.id BETWEEN %(first)s::uuid AND %(last)s::uuid
    ) IS NULL
    ON CONFLICT (id) DO NOTHING
    RETURNING id, seq, queue, type, state, tags
),
tagged AS (
    INSERT INTO penstock.job_tags (tag, seq, job)
    SELECT tag, seq, id FROM inserted, json_array_elements_text(tags::json) AS tag
    WHERE tags IS NOT NULL
    ON CONFLICT DO NOTHING
),
counted AS (
    INSERT INTO penstock.count_changes (queue, type, after, jobs)
    SELECT queue, type, state, count(*) FROM inserted WHERE %(counted)s GROUP BY queue, type, state
)
SELECT clock.now, fresh.jobs = %(asked)s, CASE WHEN fresh.jobs < %(asked)s THEN fresh.ids END
FROM clock, (SELECT count(*) AS jobs, array_agg(id) AS ids FROM inserted) AS fresh
