-- The tick that asked for a job. Ordinary jobs have none of these, and none of these indexes hold them.
ALTER TABLE jobs ADD COLUMN schedule TEXT;
ALTER TABLE jobs ADD COLUMN tick_at INTEGER;
ALTER TABLE jobs ADD COLUMN interval INTEGER;

CREATE INDEX active_of ON jobs (schedule) WHERE schedule IS NOT NULL AND completed_at IS NULL;
CREATE INDEX completed_of ON jobs (schedule, completed_at) WHERE schedule IS NOT NULL AND completed_at IS NOT NULL;

-- `intention` is the schedule as JSON; what ticks change, and what is asked for by value, has a column of its own.
CREATE TABLE schedules (
    seq INTEGER PRIMARY KEY,
    name TEXT NOT NULL CHECK (name <> ''),
    version INTEGER NOT NULL CHECK (version >= 1),
    paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
    after_completion INTEGER NOT NULL CHECK (after_completion IN (0, 1)),
    end_at INTEGER,
    next_tick_at INTEGER,
    pending_tick_at INTEGER,
    last_tick_at INTEGER,
    intention TEXT NOT NULL CHECK (json_valid(intention))
) STRICT;

CREATE UNIQUE INDEX schedules_by_name ON schedules (name);
CREATE INDEX ticking ON schedules (next_tick_at) WHERE NOT paused AND next_tick_at IS NOT NULL;
CREATE INDEX pending ON schedules (pending_tick_at) WHERE NOT paused AND pending_tick_at IS NOT NULL;
CREATE INDEX completing ON schedules (last_tick_at) WHERE NOT paused AND after_completion AND next_tick_at IS NULL;

-- What became of each tick: its job, or the reason why it has none.
CREATE TABLE ticks (
    schedule TEXT NOT NULL,
    tick_at INTEGER NOT NULL,
    job BLOB CHECK (length(job) = 16),
    skipped TEXT CHECK (skipped <> ''),
    PRIMARY KEY (schedule, tick_at),
    CHECK ((job IS NULL) <> (skipped IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX ticks_by_age ON ticks (tick_at);
