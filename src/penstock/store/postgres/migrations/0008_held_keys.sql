-- Those of the keys that a transaction which has not ended holds: one that has written or removed them. PostgreSQL tells of such a
-- row only by waiting for it, so each key is written, with hardly any patience, and undone at once.
CREATE FUNCTION penstock.held_keys(asked text[]) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET lock_timeout = '1ms'
AS $$
DECLARE
    one text;
BEGIN
    FOREACH one IN ARRAY asked LOOP
        BEGIN
            INSERT INTO penstock.keys (key, job, fingerprint)
            VALUES (one, '00000000-0000-0000-0000-000000000000', '')
            ON CONFLICT (key) DO NOTHING;
            RAISE SQLSTATE 'UNDO0';
        EXCEPTION
            WHEN lock_not_available THEN RETURN NEXT one;
            WHEN SQLSTATE 'UNDO0' THEN NULL;
        END;
    END LOOP;
END
$$;
