-- As submit_keyed.sql, for one job with a key and without tags: no array is taken apart, nothing is sorted or grouped. A caller that
-- submits one job after the other waits for this statement.
-- Each array holds one value, or none for NULL. `first` is the id.
-- keys_pkey guards the key: only who writes it inserts the job. jobs_pkey and ended_pkey guard the id: one that is there leaves its
-- row as it is, and the caller reads it. No partition is opened but that of the id.
-- admission_pkey: a shard that is closed, or goes by another ring than the job was placed by, takes it not.
-- `patience` bounds the wait for a key that another transaction has written and not committed; all that follows reads `gate`.
WITH gate AS MATERIALIZED (
    SELECT ring, closed, penstock.shard_now(%(now)s) AS now,
        set_config('lock_timeout', coalesce(%(patience)s::text, current_setting('lock_timeout')), true) AS patience
    FROM penstock.admission WHERE id = 1
),
placed AS MATERIALIZED (
    SELECT now, coalesce((%(due)s::bigint[])[1], now + coalesce((%(delays)s::bigint[])[1], 0)) AS falls_due_at
    FROM gate
    WHERE NOT closed AND coalesce((%(rings)s::bigint[])[1] = ring, true)
      AND NOT EXISTS (SELECT 1 FROM penstock.ended WHERE ended.id = %(first)s::uuid)
),
taken AS (
    INSERT INTO penstock.keys (key, job, fingerprint)
    SELECT (%(keys)s::text[])[1], %(first)s::uuid, (%(fingerprints)s::bytea[])[1] FROM placed
    WHERE NOT EXISTS (SELECT 1 FROM penstock.jobs WHERE jobs.id = %(first)s::uuid)
    ON CONFLICT (key) DO NOTHING
    RETURNING job
),
inserted AS (
    INSERT INTO penstock.jobs (
        -- include submitted,
        idempotency_key, anchor
    )
    SELECT job, (%(types)s::text[])[1], (%(queues)s::text[])[1],
        CASE WHEN falls_due_at <= now THEN 'queued' ELSE 'scheduled' END, (%(priorities)s::bigint[])[1], falls_due_at,
        now, (%(expires)s::bigint[])[1], CASE WHEN falls_due_at <= now THEN now + (%(tickets)s::bigint[])[1] END,
        (%(timeouts)s::bigint[])[1], coalesce((%(owning)s::boolean[])[1], false), (%(retried)s::uuid[])[1],
        (%(retries)s::text[])[1], NULL, (%(inputs)s::text[])[1], (%(objects)s::text[])[1], (%(params)s::bytea[])[1],
        (%(schedules)s::text[])[1], (%(ticks)s::bigint[])[1], (%(intervals)s::bigint[])[1], (%(keys)s::text[])[1],
        coalesce((%(anchors)s::boolean[])[1], false)
    FROM taken, placed
    ON CONFLICT (id) DO NOTHING
    RETURNING id, queue, type, state, created_at
),
told AS (
    INSERT INTO penstock.journal (
        -- include entry
    )
    SELECT CASE WHEN %(keep)s THEN created_at END, 1, queue, type, %(move)s, NULL, state, CASE WHEN %(keep)s THEN ARRAY[id] END,
        NULL, NULL, NULL, NULL
    FROM inserted
)
SELECT now, EXISTS (SELECT 1 FROM inserted), NULL::uuid[], ring, closed FROM gate
