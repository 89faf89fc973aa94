INSERT INTO penstock.workers (id, seen_at, reported) VALUES (%(id)s, %(now)s, %(reported)s)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, reported = excluded.reported
RETURNING drain_until
