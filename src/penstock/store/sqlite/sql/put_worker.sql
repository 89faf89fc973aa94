INSERT INTO workers (id, seen_at, reported) VALUES (:id, :now, :reported)
ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at, reported = excluded.reported
RETURNING drain_until
