-- The earliest end of all requests counts.
UPDATE workers SET drain_until = min(coalesce(drain_until, :until), :until) WHERE id = :id
RETURNING id
