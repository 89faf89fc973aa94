-- `intention` is the schedule as JSON; what ticks change, and what is asked for by value, has a column of its own.
-- It is text to the database: jsonb would refuse some strings that JSON allows.
CREATE TABLE penstock.schedules (
    name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
    version integer NOT NULL CHECK (version >= 1),
    paused boolean NOT NULL,
    after_completion boolean NOT NULL,
    end_at bigint,
    next_tick_at bigint,
    pending_tick_at bigint,
    last_tick_at bigint,
    intention text NOT NULL
);
CREATE INDEX ticking ON penstock.schedules (next_tick_at) WHERE NOT paused AND next_tick_at IS NOT NULL;
CREATE INDEX pending ON penstock.schedules (pending_tick_at) WHERE NOT paused AND pending_tick_at IS NOT NULL;
CREATE INDEX completing ON penstock.schedules (last_tick_at)
    WHERE NOT paused AND after_completion AND next_tick_at IS NULL;

-- What became of each tick: its job, or the reason why it has none.
CREATE TABLE penstock.ticks (
    schedule text COLLATE "C" NOT NULL,
    tick_at bigint NOT NULL,
    job uuid,
    skipped text CHECK (skipped <> ''),
    PRIMARY KEY (schedule, tick_at),
    CHECK ((job IS NULL) <> (skipped IS NULL))
);
CREATE INDEX ticks_by_age ON penstock.ticks (tick_at);

-- Jobs that no schedule asked for are in neither of these, and pay for neither.
CREATE INDEX active_of ON penstock.jobs (schedule COLLATE "C") WHERE schedule IS NOT NULL;
CREATE INDEX completed_of ON penstock.ended (schedule COLLATE "C", completed_at) WHERE schedule IS NOT NULL;

-- What must be known on every shard. `value` is JSON; NULL withdraws.
CREATE TABLE penstock.notices (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    told_at bigint NOT NULL,
    value bytea,
    PRIMARY KEY (kind, name)
);

-- A row is rewritten with every heartbeat of a worker: none of what changes is in an index, and there is room beside it.
CREATE TABLE penstock.workers (
    id text COLLATE "C" PRIMARY KEY,
    seen_at bigint NOT NULL,
    reported text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 200);
