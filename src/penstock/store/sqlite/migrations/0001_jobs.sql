-- Which shard this file is, and the row that `probe` writes.
CREATE TABLE shard (
    number INTEGER PRIMARY KEY,
    probed_at INTEGER NOT NULL
) STRICT;

-- All times are milliseconds since the epoch, all spans milliseconds. Structured values are JSON text, NULL for the
-- default, so that an ordinary job carries none. Wide columns come last: a reader of the short ones never touches the
-- overflow pages of the wide ones.
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL CHECK (length(id) = 16),
    type TEXT NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    attempt INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0 CHECK (losses >= 0),
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    completed_at INTEGER,
    expires_at INTEGER,
    cancel_requested_at INTEGER,
    ticket_until INTEGER,
    lease_until INTEGER,
    timeout INTEGER,
    worker TEXT,
    reason TEXT,
    alone INTEGER NOT NULL DEFAULT 0 CHECK (alone IN (0, 1)),
    owns_objects INTEGER NOT NULL DEFAULT 0 CHECK (owns_objects IN (0, 1)),
    idempotency_key TEXT,
    fingerprint BLOB,
    retry_of BLOB,
    retry TEXT,
    tags TEXT,
    progress TEXT,
    error TEXT,
    inputs TEXT,
    outputs TEXT,
    params_object TEXT,
    result_object TEXT,
    params BLOB,
    result BLOB,
    CHECK (attempt >= 0 AND fence >= attempt),
    -- One expression, not one for each rule: every write of a row pays for it.
    CHECK (CASE state
        WHEN 'running' THEN
            lease_until IS NOT NULL AND worker IS NOT NULL AND started_at IS NOT NULL
            AND ticket_until IS NULL AND completed_at IS NULL
        WHEN 'queued' THEN
            lease_until IS NULL AND worker IS NULL AND cancel_requested_at IS NULL AND completed_at IS NULL
        WHEN 'scheduled' THEN
            lease_until IS NULL AND worker IS NULL AND cancel_requested_at IS NULL AND completed_at IS NULL
            AND ticket_until IS NULL
        ELSE
            state IN ('succeeded', 'failed', 'cancelled', 'expired')
            AND completed_at IS NOT NULL AND lease_until IS NULL AND ticket_until IS NULL
    END)
) STRICT;

-- Every index ends in seq by itself. Those of the hot path are partial: what has ended or is far off costs them nothing.
CREATE UNIQUE INDEX by_id ON jobs (id);
CREATE UNIQUE INDEX by_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX unticketed ON jobs (queue, priority DESC) WHERE state = 'queued' AND ticket_until IS NULL;
CREATE INDEX ticketed ON jobs (queue, ticket_until) WHERE state = 'queued' AND ticket_until IS NOT NULL;
CREATE INDEX due ON jobs (due_at) WHERE state = 'scheduled';
CREATE INDEX leases ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX expiring ON jobs (expires_at) WHERE state IN ('scheduled', 'queued') AND expires_at IS NOT NULL;
CREATE INDEX finished ON jobs (state, completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX unhappy ON jobs (state, seq, type, queue) WHERE state IN ('failed', 'cancelled', 'expired');
CREATE INDEX by_type ON jobs (type);
CREATE INDEX by_queue ON jobs (queue);

CREATE TABLE job_tags (
    tag TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (tag, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_of ON job_tags (seq);

-- `size` is the bytes of the job's log up to and with this line, so that the cap is judged by the last line alone.
CREATE TABLE job_logs (
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    size INTEGER NOT NULL,
    stream TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (seq, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE counts (
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs INTEGER NOT NULL,
    PRIMARY KEY (queue, type, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE types (
    name TEXT PRIMARY KEY,
    declared TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE paused_queues (
    queue TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    seen_at INTEGER NOT NULL,
    reported TEXT NOT NULL
) STRICT, WITHOUT ROWID;
