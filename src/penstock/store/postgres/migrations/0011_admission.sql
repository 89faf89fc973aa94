-- What this shard takes: the epoch of the ring that it was told, and whether it is closed to new jobs and schedules. In a table
-- of its own: whoever inserts reads it in the same statement, and so holds a lock on it until its transaction ends. Who changes
-- it locks the table as a whole first, and so waits for every transaction that went by what was there before. Its one row is
-- written by who opens the store.
CREATE TABLE penstock.admission (
    id smallint PRIMARY KEY CHECK (id = 1),
    ring bigint NOT NULL,
    closed boolean NOT NULL
);

-- For submits in a caller's own transaction. One that goes by an older snapshot would not see that the shard was closed
-- since: to lock the row fails then, and the caller tries again.
CREATE FUNCTION penstock.check_open() RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM 1 FROM penstock.admission WHERE id = 1 FOR SHARE;
    END IF;
    IF (SELECT closed FROM penstock.admission WHERE id = 1) THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'this shard takes no more jobs: it is leaving the shard map, or has left it',
            HINT = 'Submit to another shard, or over HTTP.';
    END IF;
END
$$;

DO $$
DECLARE
    guarded constant text := 'SELECT number INTO shard_number FROM penstock.shard;';
    before constant text := pg_get_functiondef('penstock.submit'::regproc);
BEGIN
    IF strpos(before, guarded) = 0 THEN
        RAISE 'penstock.submit cannot be guarded: it is not as this migration knows it';
    END IF;
    EXECUTE replace(before, guarded, 'PERFORM penstock.check_open();' || chr(10) || '    ' || guarded);
END
$$;
