-- The guard: no newer notice was written since the one that this decision is based on. A row that another transaction changes meanwhile
-- is compared again as that one leaves it; one that it adds is left alone.
-- Locked by name, so that two that change the same cannot wait for each other.
WITH change AS MATERIALIZED (
    SELECT * FROM unnest(
        %(kinds)s::text[], %(names)s::text[], %(told)s::bigint[], %(values)s::bytea[], %(known)s::bigint[]
    ) AS change (kind, name, told_at, value, known_at)
    ORDER BY kind, name
),
locked AS MATERIALIZED (
    SELECT kept.kind, kept.name FROM penstock.notices AS kept JOIN change USING (kind, name)
    ORDER BY kept.kind, kept.name FOR UPDATE OF kept
),
changed AS (
    UPDATE penstock.notices AS kept SET told_at = change.told_at, value = change.value
    FROM change JOIN locked USING (kind, name)
    WHERE kept.kind = change.kind AND kept.name = change.name AND kept.told_at <= change.known_at
    RETURNING kept.kind, kept.name
),
added AS (
    INSERT INTO penstock.notices (kind, name, told_at, value)
    SELECT kind, name, told_at, value FROM change
    WHERE NOT EXISTS (SELECT FROM locked WHERE (locked.kind, locked.name) = (change.kind, change.name))
    ORDER BY kind, name
    ON CONFLICT DO NOTHING
    RETURNING kind, name
)
SELECT kind, name FROM changed UNION ALL SELECT kind, name FROM added
