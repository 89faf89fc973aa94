INSERT INTO penstock.shard (number, probed_at)
SELECT %(number)s, penstock.shard_now(%(now)s)
WHERE NOT EXISTS (SELECT 1 FROM penstock.shard)
ON CONFLICT DO NOTHING
