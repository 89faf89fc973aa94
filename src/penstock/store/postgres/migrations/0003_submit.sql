-- Submit from SQL: from any language, inside the caller's own transaction, which commits the job with its data or neither.
-- Both functions run with the rights of their owner: a caller needs USAGE on the schema and nothing on the tables.

-- A retry policy as it is kept: checked, and complete, as every reader relies on it. A bare name stands for its defaults.
CREATE FUNCTION penstock.checked_retry(asked jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    given jsonb := CASE
        WHEN jsonb_typeof(asked) <> 'string' THEN asked
        WHEN asked = '"none"' THEN '{"kind": "none", "max_attempts": 1}'
        ELSE jsonb_build_object('kind', asked)
    END;
    policy jsonb := '{"kind": "exponential", "max_attempts": 3, "delay_seconds": 1.0, "factor": 2.0, "cap_seconds": 300.0, "jitter": true, "never": []}';
BEGIN
    IF asked IS NULL OR asked = 'null' THEN
        RETURN NULL;
    END IF;
    IF jsonb_typeof(given) <> 'object' OR EXISTS (SELECT 1 FROM jsonb_object_keys(given) AS k (name) WHERE NOT policy ? name) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('retry_policy: %s is neither a kind nor an object of kind, max_attempts, delay_seconds, factor, cap_seconds, jitter and never', asked);
    END IF;
    policy := policy || given;
    IF (
        policy->>'kind' IN ('none', 'fixed', 'linear', 'exponential')
        AND jsonb_typeof(policy->'max_attempts') = 'number'
        AND (policy->>'max_attempts')::numeric BETWEEN 1 AND 1000
        AND (policy->>'max_attempts')::numeric % 1 = 0
        AND jsonb_typeof(policy->'delay_seconds') = 'number' AND (policy->>'delay_seconds')::numeric BETWEEN 0 AND 31536000
        AND jsonb_typeof(policy->'factor') = 'number' AND (policy->>'factor')::numeric BETWEEN 1 AND 100
        AND jsonb_typeof(policy->'cap_seconds') = 'number' AND (policy->>'cap_seconds')::numeric BETWEEN 0 AND 31536000
        AND jsonb_typeof(policy->'jitter') = 'boolean'
        AND jsonb_typeof(policy->'never') = 'array'
        AND NOT jsonb_path_exists(policy->'never', '$[*] ? (@.type() != "string")')
    ) IS NOT TRUE THEN
        RAISE invalid_parameter_value USING MESSAGE = format('retry_policy: %s has a value that is not acceptable', asked);
    END IF;
    -- 3.0 is a whole number here, and none to who reads it.
    RETURN policy || jsonb_build_object('max_attempts', (policy->>'max_attempts')::numeric::integer);
END
$$;

-- What is left out comes from the job type, as its workers have declared it; of a type that none has declared, only with
-- `allow_unknown`. `timeout_seconds` 'infinity' lets an attempt run for ever. A key that exists gives its job back; one that
-- was used for something else raises unique_violation. The job is dispatched within a second of the commit.
CREATE FUNCTION penstock.submit(
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
    declared jsonb;
    asked bytea;
    met record;
    due_ms bigint;
    expires_ms constant bigint := floor(extract(epoch FROM submit.expires_at) * 1000)::bigint;
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
    SELECT convert_from(n.value, 'UTF8')::jsonb INTO declared
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
    IF submit.delay_seconds IS NOT NULL AND submit.scheduled_at IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = 'give either delay_seconds or scheduled_at, not both';
    END IF;
    IF submit.delay_seconds NOT BETWEEN 0 AND 315360000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('delay_seconds: %s is not from 0 to 315360000', submit.delay_seconds);
    END IF;
    due_ms := coalesce(
        floor(extract(epoch FROM submit.scheduled_at) * 1000)::bigint,
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
    IF cardinality(submit.tags) > 32 OR EXISTS (SELECT 1 FROM unnest(submit.tags) AS t (tag) WHERE t.tag IS NULL OR length(t.tag) NOT BETWEEN 1 AND 128) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'tags: at most 32, each of 1 to 128 characters';
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
        convert_to(submit.params::text, 'UTF8')
    )
    RETURNING seq INTO new_seq;
    INSERT INTO penstock.job_tags (tag, seq, job) SELECT DISTINCT t.tag, new_seq, new_id FROM unnest(submit.tags) AS t (tag);
    INSERT INTO penstock.count_changes (jobs, queue, type, before, after) VALUES (1, chosen_queue, submit.type, NULL, chosen_state);
    RETURN new_id;
END
$$;

-- The same from one JSON document: the body of POST /v1/jobs. What cannot be done inside a transaction is refused.
CREATE FUNCTION penstock.submit_request(request jsonb) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    unknown text;
BEGIN
    SELECT string_agg(k.name, ', ') INTO unknown FROM jsonb_object_keys(request) AS k (name) WHERE k.name <> ALL (ARRAY[
        'type', 'params', 'queue', 'priority', 'delay_seconds', 'scheduled_at', 'expires_at', 'retry_policy',
        'timeout_seconds', 'tags', 'idempotency_key', 'allow_unknown'
    ]);
    IF unknown IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('%s: not known to a submit inside a transaction', unknown);
    END IF;
    RETURN penstock.submit(
        type => request->>'type',
        params => coalesce(request->'params', '{}'),
        queue => request->>'queue',
        priority => (request->>'priority')::integer,
        delay_seconds => (request->>'delay_seconds')::double precision,
        scheduled_at => (request->>'scheduled_at')::timestamptz,
        expires_at => (request->>'expires_at')::timestamptz,
        retry_policy => request->'retry_policy',
        timeout_seconds => CASE
            WHEN request->'timeout_seconds' = 'null' THEN 'infinity'
            ELSE (request->>'timeout_seconds')::double precision
        END,
        tags => CASE WHEN request ? 'tags' THEN ARRAY(SELECT jsonb_array_elements_text(request->'tags')) END,
        idempotency_key => request->>'idempotency_key',
        allow_unknown => coalesce((request->>'allow_unknown')::boolean, false)
    );
END
$$;
