-- Instants that come from outside lie from 1970 to 2999, as `model.timing` has it: beyond, rows could not be read back.
UPDATE penstock.jobs SET
    due_at = least(greatest(due_at, 0), 32503679999999),
    expires_at = CASE WHEN expires_at IS NOT NULL THEN least(greatest(expires_at, 0), 32503679999999) END,
    tick_at = CASE WHEN tick_at IS NOT NULL THEN least(greatest(tick_at, 0), 32503679999999) END
WHERE due_at NOT BETWEEN 0 AND 32503679999999
   OR expires_at NOT BETWEEN 0 AND 32503679999999
   OR tick_at NOT BETWEEN 0 AND 32503679999999;
UPDATE penstock.schedules SET
    end_at = CASE WHEN end_at IS NOT NULL THEN least(greatest(end_at, 0), 32503679999999) END,
    next_tick_at = CASE WHEN next_tick_at IS NOT NULL THEN least(greatest(next_tick_at, 0), 32503679999999) END
WHERE end_at NOT BETWEEN 0 AND 32503679999999 OR next_tick_at NOT BETWEEN 0 AND 32503679999999;
DELETE FROM penstock.ticks WHERE tick_at NOT BETWEEN 0 AND 32503679999999;

-- What is NULL passes: false alone refuses. One expression for each table: every write of a row pays for it.
ALTER TABLE penstock.jobs ADD CONSTRAINT jobs_instants CHECK (
    due_at BETWEEN 0 AND 32503679999999
    AND expires_at BETWEEN 0 AND 32503679999999
    AND tick_at BETWEEN 0 AND 32503679999999
);
ALTER TABLE penstock.schedules ADD CONSTRAINT schedules_instants CHECK (
    end_at BETWEEN 0 AND 32503679999999 AND next_tick_at BETWEEN 0 AND 32503679999999
);
ALTER TABLE penstock.ticks ADD CONSTRAINT ticks_instants CHECK (tick_at BETWEEN 0 AND 32503679999999);

-- An instant that a caller gives, in milliseconds. 'infinity' is out of range too.
CREATE FUNCTION penstock.checked_instant(name text, given timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF given NOT BETWEEN '1970-01-01 00:00:00Z' AND '2999-12-31 23:59:59.999Z' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('%s: %s is out of range; give an instant from 1970 to 2999', name, given);
    END IF;
    RETURN floor(extract(epoch FROM given) * 1000)::bigint;
END
$$;

-- What the API would refuse is refused here too, so that every reader can take it: instants out of range, control
-- characters in tags, params too deep, too long or with numbers too large. jsonb writes 1e300 out as an integer.
-- What is left out comes from the job type, as its workers have declared it; of a type that none has declared, only with
-- `allow_unknown`. `timeout_seconds` 'infinity' lets an attempt run for ever. A key that exists gives its job back; one that
-- was used for something else raises unique_violation. The job is dispatched within a second of the commit.
CREATE OR REPLACE FUNCTION penstock.submit(
    type text,
    params jsonb DEFAULT '{}',
    queue text DEFAULT NULL,
    priority integer DEFAULT NULL,
    delay_seconds double precision DEFAULT NULL,
    scheduled_at timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    retry_policy jsonb DEFAULT NULL,
    timeout_seconds double precision DEFAULT NULL,
    tags text[] DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    allow_unknown boolean DEFAULT false
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    now_ms constant bigint := penstock.shard_now(NULL);
    name_pattern constant text := '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';
    tag_pattern constant text := '^[^\x01-\x1f\x7f-\x9f]{1,128}$';
    declared jsonb;
    asked bytea;
    params_json bytea;
    met record;
    due_ms bigint;
    expires_ms constant bigint := penstock.checked_instant('expires_at', submit.expires_at);
    chosen_queue text;
    chosen_state text;
    chosen_timeout double precision;
    shard_number integer;
    new_id uuid;
    new_seq bigint;
BEGIN
    IF submit.type IS NULL OR submit.type !~ name_pattern THEN
        RAISE invalid_parameter_value USING MESSAGE = format('type: %L is not a name of letters, digits and . _ : -', submit.type);
    END IF;
    -- A declaration may hold U+0000, in a description for one, which jsonb cannot; nothing read of it here does.
    SELECT replace(convert_from(n.value, 'UTF8'), '\u0000', '\u0020')::jsonb INTO declared
    FROM penstock.notices AS n WHERE n.kind = 'type' AND n.name = submit.type AND n.value IS NOT NULL;
    IF declared IS NULL AND NOT submit.allow_unknown THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('type: no worker has declared %L', submit.type),
            HINT = 'Start a worker that has it, or pass allow_unknown => true: the job then waits for one.';
    END IF;
    chosen_queue := coalesce(submit.queue, declared->>'queue', submit.type);
    IF chosen_queue !~ name_pattern THEN
        RAISE invalid_parameter_value USING MESSAGE = format('queue: %L is not a name of letters, digits and . _ : -', chosen_queue);
    END IF;
    IF submit.params IS NULL OR jsonb_typeof(submit.params) <> 'object' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'params: expected a JSON object of named parameters';
    END IF;
    IF jsonb_path_exists(submit.params, 'strict $.**{64}') THEN
        RAISE invalid_parameter_value USING MESSAGE = 'params: nested deeper than 64 levels';
    END IF;
    IF jsonb_path_exists(submit.params, '$.** ? (@.type() == "number" && (@ < -9223372036854775808 || @ > 9223372036854775807))') THEN
        RAISE invalid_parameter_value USING MESSAGE = 'params: a number does not fit into 64 bits; write it as text';
    END IF;
    params_json := convert_to(submit.params::text, 'UTF8');
    IF length(params_json) > 16777216 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('params: %s bytes are more than 16777216; keep them elsewhere and pass where', length(params_json));
    END IF;
    IF submit.delay_seconds IS NOT NULL AND submit.scheduled_at IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = 'give either delay_seconds or scheduled_at, not both';
    END IF;
    IF submit.delay_seconds NOT BETWEEN 0 AND 315360000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('delay_seconds: %s is not from 0 to 315360000', submit.delay_seconds);
    END IF;
    due_ms := coalesce(
        penstock.checked_instant('scheduled_at', submit.scheduled_at),
        now_ms + floor(coalesce(submit.delay_seconds, 0) * 1000)::bigint
    );
    IF expires_ms <= greatest(due_ms, now_ms) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('expires_at: %s is not after the job is due; it could never run', submit.expires_at);
    END IF;
    chosen_timeout := CASE
        WHEN submit.timeout_seconds IS NOT NULL THEN submit.timeout_seconds
        WHEN declared ? 'timeout_seconds' THEN (declared->>'timeout_seconds')::double precision
        ELSE 3600
    END;
    IF chosen_timeout = 'infinity' THEN
        chosen_timeout := NULL;
    ELSIF NOT (chosen_timeout > 0 AND chosen_timeout <= 31536000) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('timeout_seconds: %s is not above 0 and up to 31536000', chosen_timeout);
    END IF;
    IF cardinality(submit.tags) > 32 OR EXISTS (SELECT 1 FROM unnest(submit.tags) AS t (tag) WHERE (t.tag ~ tag_pattern) IS NOT TRUE) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'tags: at most 32, each of 1 to 128 characters, none of them a control character';
    END IF;
    IF submit.idempotency_key !~ '^[\x21-\x7e]{1,255}$' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'idempotency_key: 1 to 255 visible ASCII characters';
    END IF;

    SELECT number INTO shard_number FROM penstock.shard;
    IF shard_number IS NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = 'this database is no shard yet: start a Penstock server on it once';
    END IF;
    -- A UUIDv7 whose 12 bits after the version name the shard. The last 64 bits of a random UUID are as they must be here.
    new_id := (
        lpad(to_hex(now_ms), 12, '0') || '7' || lpad(to_hex(shard_number), 3, '0')
        || right(replace(gen_random_uuid()::text, '-', ''), 16)
    )::uuid;

    IF submit.idempotency_key IS NOT NULL THEN
        asked := substring(sha256(convert_to(jsonb_build_array(
            submit.type, submit.params, submit.queue, submit.priority, submit.delay_seconds,
            extract(epoch FROM submit.scheduled_at), expires_ms, submit.retry_policy, submit.timeout_seconds::text, submit.tags
        )::text, 'UTF8')) FROM 1 FOR 16);
        LOOP
            INSERT INTO penstock.keys AS k (key, job, fingerprint) VALUES (submit.idempotency_key, new_id, asked)
            ON CONFLICT (key) DO NOTHING;
            EXIT WHEN FOUND;
            SELECT k.job, k.fingerprint INTO met FROM penstock.keys AS k WHERE k.key = submit.idempotency_key;
            -- Pruned between the two statements: the key is free now.
            CONTINUE WHEN NOT FOUND;
            IF met.fingerprint <> asked THEN
                RAISE unique_violation USING MESSAGE = format('the idempotency key was used for job %s, which asked for something else', met.job);
            END IF;
            RETURN met.job;
        END LOOP;
    END IF;

    chosen_state := CASE WHEN due_ms <= now_ms THEN 'queued' ELSE 'scheduled' END;
    INSERT INTO penstock.jobs (
        id, type, queue, state, priority, due_at, created_at, expires_at, timeout, idempotency_key, retry, tags, params
    )
    VALUES (
        new_id, submit.type, chosen_queue, chosen_state, coalesce(submit.priority, (declared->>'priority')::integer, 5),
        due_ms, now_ms, expires_ms, floor(chosen_timeout * 1000)::bigint, submit.idempotency_key,
        coalesce(penstock.checked_retry(submit.retry_policy), declared->'retry')::text,
        CASE WHEN cardinality(submit.tags) > 0 THEN to_json(submit.tags)::text END,
        params_json
    )
    RETURNING seq INTO new_seq;
    INSERT INTO penstock.job_tags (tag, seq, job) SELECT DISTINCT t.tag, new_seq, new_id FROM unnest(submit.tags) AS t (tag);
    INSERT INTO penstock.count_changes (jobs, queue, type, before, after) VALUES (1, chosen_queue, submit.type, NULL, chosen_state);
    RETURN new_id;
END
$$;
