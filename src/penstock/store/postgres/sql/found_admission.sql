-- notices_pkey, admission_pkey. Open, and by the ring that this shard knows, if any.
INSERT INTO penstock.admission (id, ring, closed)
SELECT 1, coalesce((SELECT told_at FROM penstock.notices WHERE kind = 'ring' AND name = 'ring'), 0), false
ON CONFLICT DO NOTHING
