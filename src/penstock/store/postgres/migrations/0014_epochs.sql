-- The epoch of a shard: raised when its database is found to be another than before, or older. It is the upper part of every
-- fence that is given from then on (`model.fences`: fence >> 22), so that no fence is given twice, whatever was lost.

-- Only what has not ended is rewritten. What has ended keeps its fence in two parts, of which old rows have one.
ALTER TABLE penstock.jobs ALTER COLUMN fence TYPE bigint;
ALTER TABLE penstock.ended ADD COLUMN epoch integer NOT NULL DEFAULT 0;
-- In place of `fence`, which is too narrow; that one stays for what was written before.
ALTER TABLE penstock.job_logs ADD COLUMN whole_fence bigint NOT NULL DEFAULT 0;

-- `lineage` is what `penstock.lineage()` said when the epoch was raised, or the shard first opened.
ALTER TABLE penstock.admission ADD COLUMN epoch bigint NOT NULL DEFAULT 0, ADD COLUMN lineage text;

-- What a database is that goes on from its last commit: its cluster, its own oid and that of a table (a dump restored beside
-- the old one has others), and the timeline, which every promotion and every recovery to an earlier point changes. NULL
-- where the server does not say: on a standby, and where a provider has taken the right away.
CREATE FUNCTION penstock.lineage() RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN concat_ws(
        '/',
        (SELECT system_identifier FROM pg_control_system()),
        (SELECT oid FROM pg_database WHERE datname = current_database()),
        'penstock.admission'::regclass::oid,
        left(pg_walfile_name(pg_current_wal_lsn()), 8)
    );
EXCEPTION
    WHEN insufficient_privilege OR feature_not_supported OR undefined_function OR object_not_in_prerequisite_state THEN
        RETURN NULL;
END
$$;

-- How much the cluster has written and flushed in all its life, in bytes: less than a process has seen before means that it was
-- put back to a snapshot, which is not seen by its lineage. NULL where the server does not say.
CREATE FUNCTION penstock.flushed() RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RETURN pg_current_wal_flush_lsn() - '0/0'::pg_lsn;
EXCEPTION
    WHEN insufficient_privilege OR feature_not_supported OR undefined_function OR object_not_in_prerequisite_state THEN
        RETURN NULL;
END
$$;

-- The clock of every move that shows a fence or gives one: fails in a database whose epoch has to be raised first. The lock on
-- `admission` lasts until the transaction ends, and whoever raises the epoch waits for it. Read here, and not in the statement
-- itself, whose snapshot may be older than the lock. `base` is added to the low part of a fence.
CREATE FUNCTION penstock.fenced_clock(given bigint, OUT now bigint, OUT base bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    known text;
BEGIN
    SELECT admission.epoch << 22, admission.lineage INTO base, known FROM penstock.admission WHERE id = 1;
    IF known <> penstock.lineage() THEN
        RAISE SQLSTATE 'PSEPO' USING MESSAGE = 'the database was restored or failed over, and its epoch is not raised yet';
    END IF;
    now := penstock.shard_now(given);
END
$$;
