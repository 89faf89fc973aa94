INSERT INTO types (name, declared) VALUES (:name, :declared)
ON CONFLICT DO UPDATE SET declared = excluded.declared
