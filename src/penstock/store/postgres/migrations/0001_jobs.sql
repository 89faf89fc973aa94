-- Every object is named with its schema, so that no session state is needed: PgBouncer may give each transaction another.
-- All times are milliseconds since the epoch by this server's clock, all spans milliseconds. Structured values are JSON
-- text, NULL for the default, so that an ordinary job carries none.

-- The shard's clock: the server's own, or the instant given by a test.
CREATE FUNCTION penstock.shard_now(given bigint) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN coalesce(given, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);

-- Which shard this database is, and the row that `probe` writes.
CREATE TABLE penstock.shard (
    number integer PRIMARY KEY,
    probed_at bigint NOT NULL
);

-- One order over all jobs. Not cached: a session that was idle for an hour would give new jobs old places.
CREATE SEQUENCE penstock.job_seq;

-- What has not ended. Kept small, so that vacuum is quick however much has ended; what ends moves to `ended`.
-- Fixed-width columns come first, then short ones, then wide ones.
CREATE TABLE penstock.jobs (
    id uuid PRIMARY KEY,
    seq bigint NOT NULL DEFAULT nextval('penstock.job_seq'),
    due_at bigint NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint,
    expires_at bigint,
    cancel_requested_at bigint,
    ticket_until bigint,
    lease_until bigint,
    timeout bigint,
    tick_at bigint,
    "interval" bigint,
    attempt integer NOT NULL DEFAULT 0,
    fence integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0 CHECK (losses >= 0),
    priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    alone boolean NOT NULL DEFAULT false,
    owns_objects boolean NOT NULL DEFAULT false,
    retry_of uuid,
    state text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    worker text,
    reason text,
    idempotency_key text,
    schedule text COLLATE "C",
    retry text,
    tags text,
    progress text,
    error text,
    inputs text,
    params_object text,
    params bytea,
    -- Where it is to be found: 0 among what is due later, 1 in the line for a ticket, 2 out with a ticket or at a worker.
    -- No index names the state or the lease, so that to claim a job that has its ticket, and to renew, are HOT updates.
    place smallint GENERATED ALWAYS AS (
        CASE WHEN state = 'scheduled' THEN 0 WHEN state = 'queued' AND ticket_until IS NULL THEN 1 ELSE 2 END
    ) STORED,
    CHECK (attempt >= 0 AND fence >= attempt),
    -- One expression, not one for each rule: every write of a row pays for it.
    CHECK (CASE state
        WHEN 'running' THEN
            lease_until IS NOT NULL AND worker IS NOT NULL AND started_at IS NOT NULL
        WHEN 'queued' THEN
            lease_until IS NULL AND worker IS NULL AND cancel_requested_at IS NULL
        WHEN 'scheduled' THEN
            lease_until IS NULL AND worker IS NULL AND cancel_requested_at IS NULL AND ticket_until IS NULL
        ELSE false
    END)
) WITH (
    -- Jobs of one page are claimed at about the same time, and all their new versions are to find room there: 3 of 10 did
    -- at 80, all at 50, which took a quarter off what the server does for a claim and its settle.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- Each entry costs a submit or a claim about as much as the row itself. So every place has its own, and what is queued
-- has but one: its lists go by `unticketed` too.
CREATE INDEX later_lines ON penstock.jobs (queue, type, seq) WHERE place = 0;
CREATE INDEX due ON penstock.jobs (due_at, seq) WHERE place = 0;
CREATE INDEX unticketed ON penstock.jobs (queue, priority DESC, seq) WHERE place = 1;
CREATE INDEX away ON penstock.jobs (seq) WHERE place = 2;
CREATE INDEX expiring ON penstock.jobs (expires_at) WHERE expires_at IS NOT NULL;

-- What has ended, as it was then; written once. An id begins with its time, so that ids of one day are one range.
CREATE TABLE penstock.ended (
    id uuid PRIMARY KEY,
    seq bigint NOT NULL,
    due_at bigint NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint,
    completed_at bigint NOT NULL,
    expires_at bigint,
    cancel_requested_at bigint,
    timeout bigint,
    tick_at bigint,
    "interval" bigint,
    attempt integer NOT NULL,
    fence integer NOT NULL,
    losses integer NOT NULL,
    priority smallint NOT NULL,
    owns_objects boolean NOT NULL,
    retry_of uuid,
    state text COLLATE "C" NOT NULL CHECK (state IN ('succeeded', 'failed', 'cancelled', 'expired')),
    type text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    worker text,
    reason text,
    idempotency_key text,
    schedule text COLLATE "C",
    retry text,
    tags text,
    progress text,
    error text,
    inputs text,
    outputs text,
    params_object text,
    result_object text,
    params bytea,
    result bytea
) PARTITION BY RANGE (id);

-- A partition for each day of the ids is made by who opens the store, and by prune; what has none goes here.
CREATE TABLE penstock.ended_default PARTITION OF penstock.ended DEFAULT WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- Lists walk one line for each (queue, type, state) that the counts name, newest first; all their inserts are at right
-- ends. Pruning walks `finished`. A line goes by its hash: to compare three texts at each step of an insert made this the
-- dearest index of all.
CREATE INDEX ended_lines ON penstock.ended (hashtextextended(queue || ' ' || type || ' ' || state, 0), seq);
CREATE INDEX finished ON penstock.ended (state, completed_at);

-- One job per key, whether it has ended or not. Only jobs that have one pay for it; prune gives it free.
CREATE TABLE penstock.keys (
    key text COLLATE "C" PRIMARY KEY,
    job uuid NOT NULL,
    fingerprint bytea NOT NULL
);

-- `job` is the id: nothing finds a job by its seq alone.
CREATE TABLE penstock.job_tags (
    tag text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    PRIMARY KEY (tag, seq)
);
CREATE INDEX tags_of ON penstock.job_tags (seq);

-- `size` is the bytes of the job's log up to and with this line, so that the cap is judged by the last line alone.
CREATE TABLE penstock.job_logs (
    seq bigint NOT NULL,
    position bigint NOT NULL,
    at bigint NOT NULL,
    attempt integer NOT NULL,
    size bigint NOT NULL,
    stream text NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (seq, position)
);

-- How many jobs there are: `counts` as of the last fold, and every change since. A change is appended in the write it
-- tells of, so that the two together are exact and no two writers ever wait for the same row.
CREATE TABLE penstock.counts (
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    jobs bigint NOT NULL,
    PRIMARY KEY (queue, type, state)
);
CREATE TABLE penstock.count_changes (
    jobs bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    before text COLLATE "C",
    after text COLLATE "C"
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0
);
