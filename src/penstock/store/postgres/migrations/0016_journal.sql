-- min_version: 16
-- Code that knows no journal writes to `count_changes`, which is gone, and raises no version.

-- 1 for a new job, one more with each change of its state and with the mark for cancelling.
ALTER TABLE penstock.jobs ADD COLUMN version integer NOT NULL DEFAULT 1;
ALTER TABLE penstock.ended ADD COLUMN version integer NOT NULL DEFAULT 1;

-- Not cached: the ids of the moves of one job must grow with them.
CREATE SEQUENCE penstock.entry_seq;

-- What one statement did to the jobs of one type in one queue. An entry gets its number once it is visible. Until then it is
-- part of the counts; `counts` has all that have a number.
CREATE TABLE penstock.journal (
    -- Given after the statement has all its row locks: the moves of one job are in the order of their ids, whenever they commit.
    id bigint NOT NULL DEFAULT nextval('penstock.entry_seq'),
    number bigint,
    -- NULL where events are not kept: the entry is counted and deleted.
    at bigint,
    -- The latest `at` up to this number: it grows with the number, as `at` does not.
    latest_at bigint,
    jobs integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    move text COLLATE "C" NOT NULL,
    before text COLLATE "C",
    after text COLLATE "C",
    -- The jobs. NULL where there are no events: what is pruned or gets another type is counted and deleted.
    -- Not compressed: it takes time in every move, and half of an id is random.
    ids uuid[] STORAGE EXTERNAL,
    -- NULL for new jobs: 1 and 0 for all of them.
    versions integer[],
    attempts integer[],
    -- NULL where no job has one.
    reasons text[],
    -- Milliseconds waited (claim) or run (settle); NULL for other moves, and once they are in the history.
    spans integer[]
) WITH (
    -- Each entry is written twice. Dead ones are to go from `fresh` soon: whoever numbers walks over them.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_index_cleanup = on
);
CREATE INDEX fresh ON penstock.journal (id) WHERE number IS NULL;
CREATE UNIQUE INDEX numbered ON penstock.journal (number) WHERE number IS NOT NULL;

-- One row. Its lock is that of the process that numbers. `number` is the greatest given, `oldest` the least that is there,
-- `keep` whether events are kept, for penstock.submit(); servers set it.
CREATE TABLE penstock.journal_head (
    id smallint PRIMARY KEY CHECK (id = 1),
    number bigint NOT NULL DEFAULT 0,
    oldest bigint NOT NULL DEFAULT 1,
    latest_at bigint NOT NULL DEFAULT 0,
    keep boolean NOT NULL DEFAULT true
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO penstock.journal_head (id) VALUES (1);

-- How many jobs moved in a span of `span` milliseconds that begins `at`. `before` and `after` are '' where there is no state.
-- `bucket` is the number of binary digits of the milliseconds waited or run, -1 for other moves; `millis` is their sum.
CREATE TABLE penstock.history (
    span integer NOT NULL,
    bucket smallint NOT NULL,
    at bigint NOT NULL,
    jobs bigint NOT NULL,
    millis bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    move text COLLATE "C" NOT NULL,
    before text COLLATE "C" NOT NULL,
    after text COLLATE "C" NOT NULL,
    PRIMARY KEY (span, at, queue, type, move, before, after, bucket)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- Where the relay of a subscription is in the journal, and what it has done.
CREATE TABLE penstock.relays (
    subscription text COLLATE "C" PRIMARY KEY,
    number bigint,
    index integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    retry_at bigint,
    delivered bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Events that were refused, or wait behind one of their job that was. `due_at` NULL: behind another one.
CREATE TABLE penstock.parked (
    subscription text COLLATE "C" NOT NULL,
    job uuid NOT NULL,
    version integer NOT NULL,
    attempts integer NOT NULL,
    due_at bigint,
    state text COLLATE "C" NOT NULL CHECK (state IN ('waiting', 'dead')),
    error text,
    event bytea NOT NULL,
    PRIMARY KEY (subscription, job, version)
);
-- The state first, so that no look-up of jobs goes by it: without statistics a subscription seems to have few rows.
CREATE INDEX parked_due ON penstock.parked (state, subscription, due_at, job, version);

-- Deliveries of a subscription: each failure, and ranges of successes.
CREATE TABLE penstock.deliveries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    took bigint NOT NULL,
    events bigint NOT NULL,
    attempt integer NOT NULL,
    status integer,
    delivered boolean NOT NULL,
    first text NOT NULL,
    last text NOT NULL,
    detail text
);
CREATE INDEX deliveries_of ON penstock.deliveries (subscription, at, id);
CREATE INDEX deliveries_by_age ON penstock.deliveries (at);

INSERT INTO penstock.counts (queue, type, state, jobs)
SELECT queue, type, state, sum(jobs)
FROM (
    SELECT queue, type, after AS state, jobs FROM penstock.count_changes WHERE after IS NOT NULL
    UNION ALL
    SELECT queue, type, before, -jobs FROM penstock.count_changes WHERE before IS NOT NULL
) AS change
GROUP BY queue, type, state
HAVING sum(jobs) <> 0
ON CONFLICT (queue, type, state) DO UPDATE SET jobs = counts.jobs + excluded.jobs;
DROP TABLE penstock.count_changes;

DO $$
DECLARE
    counted constant text := 'INSERT INTO penstock.count_changes (jobs, queue, type, before, after) VALUES (1, chosen_queue, submit.type, NULL, chosen_state);';
    told constant text := 'INSERT INTO penstock.journal (at, jobs, queue, type, move, after, ids)
    SELECT CASE WHEN head.keep THEN now_ms END, 1, chosen_queue, submit.type, ''submit'', chosen_state, CASE WHEN head.keep THEN ARRAY[new_id] END
    FROM (SELECT coalesce((SELECT keep FROM penstock.journal_head), true) AS keep) AS head;';
    before constant text := pg_get_functiondef('penstock.submit'::regproc);
BEGIN
    IF strpos(before, counted) = 0 THEN
        RAISE 'penstock.submit cannot write to the journal: it is not as this migration knows it';
    END IF;
    EXECUTE replace(before, counted, told);
END
$$;
