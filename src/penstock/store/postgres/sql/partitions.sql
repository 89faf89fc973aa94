SELECT relname::text FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'penstock.ended'::regclass
