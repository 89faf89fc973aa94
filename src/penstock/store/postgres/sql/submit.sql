-- jobs_pkey guards the id: one that is there fails it all, and the caller asks submit_keyed.sql. Ids are new all but always,
-- and to insert with ON CONFLICT takes a look-up and a second write for each.
-- ended_pkey: one that has ended leaves its row as it is. New ids are close to each other in time, and mostly none between
-- them has ended: that is asked once, and only else for each. Row by row, not joined, so that they get their seq in order.
-- admission_pkey: a closed shard takes none.
-- No partition is opened but those from `first` to `last` of the ids.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
gate AS MATERIALIZED (SELECT ring, closed FROM penstock.admission WHERE id = 1),
asked AS (
    SELECT asked.*, clock.now, coalesce(asked.due_at, clock.now + coalesce(asked.delay, 0)) AS falls_due_at
    FROM clock, unnest(
        %(ids)s::uuid[], %(types)s::text[], %(queues)s::text[],
        %(priorities)s::bigint[], %(due)s::bigint[], %(delays)s::bigint[],
        %(expires)s::bigint[], %(tickets)s::bigint[], %(timeouts)s::bigint[],
        %(owning)s::boolean[], %(retried)s::uuid[], %(retries)s::text[],
        %(tags)s::text[], %(inputs)s::text[], %(objects)s::text[],
        %(params)s::bytea[], %(schedules)s::text[], %(ticks)s::bigint[],
        %(intervals)s::bigint[]
    ) AS asked (
        -- include submission
    )
),
span AS MATERIALIZED (
    SELECT NOT EXISTS (
        SELECT 1 FROM penstock.ended WHERE ended.id BETWEEN %(first)s::uuid AND %(last)s::uuid
    ) AS all_new
),
inserted AS (
    INSERT INTO penstock.jobs (
        -- include submitted
    )
    SELECT id, type, queue, CASE WHEN falls_due_at <= now THEN 'queued' ELSE 'scheduled' END, priority, falls_due_at,
        now, expires_at, CASE WHEN falls_due_at <= now THEN now + ticket_for END, timeout,
        coalesce(owns_objects, false), retry_of, retry, tags, inputs, params_object, params, schedule, tick_at,
        "interval"
    FROM asked
    WHERE NOT (SELECT closed FROM gate) AND ((SELECT all_new FROM span) OR (
        SELECT true FROM penstock.ended
        WHERE ended.id = asked.id AND ended.id BETWEEN %(first)s::uuid AND %(last)s::uuid
    ) IS NULL)
    RETURNING id, seq, queue, type, state, tags
),
tagged AS (
    INSERT INTO penstock.job_tags (tag, seq, job)
    SELECT tag, seq, id FROM inserted, json_array_elements_text(tags::json) AS tag
    WHERE tags IS NOT NULL
    ON CONFLICT DO NOTHING
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN (SELECT now FROM clock) END, count(*), queue, type, %(move)s, NULL, state, array_agg(id) FILTER (WHERE %(keep)s),
        NULL, NULL, NULL, NULL
    FROM inserted GROUP BY queue, type, state
)
SELECT clock.now, fresh.jobs = %(asked)s, CASE WHEN fresh.jobs < %(asked)s THEN ARRAY(SELECT id FROM inserted) END,
    gate.ring, gate.closed
FROM clock, gate, (SELECT count(*) AS jobs FROM inserted) AS fresh
