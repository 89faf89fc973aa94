-- The earliest end of all requests counts; least() passes over NULL. Locked in one order: two callers may ask the same workers.
WITH asked AS MATERIALIZED (
    SELECT id FROM penstock.workers WHERE id = ANY (%(names)s) ORDER BY id FOR UPDATE
)
UPDATE penstock.workers SET drain_until = least(drain_until, %(until)s) WHERE id = ANY (ARRAY(SELECT id FROM asked))
RETURNING id
