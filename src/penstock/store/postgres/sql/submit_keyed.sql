-- As submit.sql, for a batch in which some jobs have keys, or ids that may be in use. keys_pkey guards the keys: only who
-- writes the key inserts the job.
-- Keys are taken in their own order, so that two batches never wait for each other.
-- jobs_pkey and ended_pkey guard the id: one that is there leaves its row as it is, and the caller reads it.
-- Each is asked for only where something is between the first and the last of the ids, as mostly nothing is. No partition is
-- opened but those.
-- admission_pkey: a shard that is closed, or goes by another ring than a job was placed by, takes it not.
-- Each array stands in a subquery, so that the plan never depends on how many values it holds.
-- `patience` bounds the wait for a key that another transaction has written and not committed; all that follows reads `clock`.
WITH clock AS MATERIALIZED (
    SELECT penstock.shard_now(%(now)s) AS now,
        set_config('lock_timeout', coalesce(%(patience)s::text, current_setting('lock_timeout')), true) AS patience
),
gate AS MATERIALIZED (SELECT ring, closed FROM penstock.admission WHERE id = 1),
asked AS MATERIALIZED (
    SELECT asked.*, clock.now, coalesce(asked.due_at, clock.now + coalesce(asked.delay, 0)) AS falls_due_at
    FROM clock, gate, unnest(
        (SELECT %(ids)s::uuid[]), (SELECT %(types)s::text[]), (SELECT %(queues)s::text[]),
        (SELECT %(priorities)s::bigint[]), (SELECT %(due)s::bigint[]), (SELECT %(delays)s::bigint[]),
        (SELECT %(expires)s::bigint[]), (SELECT %(tickets)s::bigint[]), (SELECT %(timeouts)s::bigint[]),
        (SELECT %(owning)s::boolean[]), (SELECT %(retried)s::uuid[]), (SELECT %(retries)s::text[]),
        (SELECT %(tags)s::text[]), (SELECT %(inputs)s::text[]), (SELECT %(objects)s::text[]),
        (SELECT %(params)s::bytea[]), (SELECT %(schedules)s::text[]), (SELECT %(ticks)s::bigint[]),
        (SELECT %(intervals)s::bigint[]), (SELECT %(keys)s::text[]), (SELECT %(fingerprints)s::bytea[]),
        (SELECT %(anchors)s::boolean[]), (SELECT %(rings)s::bigint[])
    ) WITH ORDINALITY AS asked (
        -- include submission,
        key, fingerprint, anchor, ring, n
    )
    WHERE NOT gate.closed AND coalesce(asked.ring = gate.ring, true)
),
span AS MATERIALIZED (
    SELECT
        NOT EXISTS (SELECT 1 FROM penstock.jobs WHERE jobs.id BETWEEN %(first)s::uuid AND %(last)s::uuid) AS none_live,
        NOT EXISTS (SELECT 1 FROM penstock.ended WHERE ended.id BETWEEN %(first)s::uuid AND %(last)s::uuid) AS none_ended
),
taken AS (
    INSERT INTO penstock.keys (key, job, fingerprint)
    SELECT key, id, fingerprint FROM asked
    WHERE key IS NOT NULL
      AND ((SELECT none_live FROM span) OR (SELECT true FROM penstock.jobs WHERE jobs.id = asked.id) IS NULL)
    ORDER BY key, n
    ON CONFLICT (key) DO NOTHING
    RETURNING key, job
),
inserted AS (
    INSERT INTO penstock.jobs (
        -- include submitted,
        idempotency_key, anchor
    )
    SELECT id, type, queue, CASE WHEN falls_due_at <= now THEN 'queued' ELSE 'scheduled' END, priority, falls_due_at,
        now, expires_at, CASE WHEN falls_due_at <= now THEN now + ticket_for END, timeout,
        coalesce(owns_objects, false), retry_of, retry, tags, inputs, params_object, params, schedule, tick_at,
        "interval", key, coalesce(anchor, false)
    FROM asked
    WHERE (key IS NULL OR (key, id) IN (SELECT key, job FROM taken))
      AND ((SELECT none_ended FROM span) OR (
          SELECT true FROM penstock.ended
          WHERE ended.id = asked.id AND ended.id BETWEEN %(first)s::uuid AND %(last)s::uuid
      ) IS NULL)
    ORDER BY n
    ON CONFLICT (id) DO NOTHING
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
