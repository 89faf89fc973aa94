-- How often a job has changed its state or was asked to cancel; it numbers the job's events. No CHECK: all jobs would be
-- read for it here, and every move would pay for it.
ALTER TABLE jobs ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

-- What one commit did to jobs of one type in one queue. AUTOINCREMENT: no number is given twice, even when all entries
-- before it are gone. `ids` are 16 bytes each; NULL where jobs were only removed or given another type.
-- `versions`, `attempts` and `spans` (milliseconds waited or run) are one integer where all jobs have the same, else
-- msgpack; `reasons` is msgpack, NULL where no job has one.
CREATE TABLE journal (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    move TEXT NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    before TEXT,
    after TEXT,
    jobs INTEGER NOT NULL CHECK (jobs >= 1),
    versions ANY,
    attempts ANY,
    spans ANY,
    reasons BLOB,
    ids BLOB CHECK (length(ids) = 16 * jobs)
) STRICT;

-- How many jobs each kind of move moved in a span: `span` milliseconds from `at` on. '' stands for no state, -1 for no bucket.
CREATE TABLE history (
    span INTEGER NOT NULL,
    at INTEGER NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    move TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    millis INTEGER NOT NULL,
    PRIMARY KEY (span, at, queue, type, move, before, after, bucket)
) STRICT, WITHOUT ROWID;

-- The last entry whose jobs are in the history.
CREATE TABLE journal_fold (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    folded INTEGER NOT NULL
) STRICT;
INSERT INTO journal_fold (id, folded) VALUES (1, 0);

-- One row for each subscription: up to where its events were delivered, and how that went.
CREATE TABLE relays (
    subscription TEXT PRIMARY KEY,
    number INTEGER,
    place INTEGER,
    failures INTEGER NOT NULL,
    retry_at INTEGER,
    delivered INTEGER NOT NULL,
    failed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Events that an endpoint has refused, and those behind them. `due_at` is the last possible instant where there is none.
CREATE TABLE parked (
    seq INTEGER PRIMARY KEY,
    subscription TEXT NOT NULL,
    job BLOB NOT NULL CHECK (length(job) = 16),
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    error TEXT,
    event BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX parked_by_job ON parked (subscription, job, version);
CREATE INDEX parked_by_time ON parked (subscription, state, due_at, job, version);

CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY,
    subscription TEXT NOT NULL,
    at INTEGER NOT NULL,
    delivered INTEGER NOT NULL CHECK (delivered IN (0, 1)),
    first TEXT NOT NULL,
    last TEXT NOT NULL,
    events INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    status INTEGER,
    took INTEGER NOT NULL,
    detail TEXT
) STRICT;
CREATE INDEX deliveries_of ON deliveries (subscription, at);
CREATE INDEX deliveries_by_age ON deliveries (at);
