INSERT INTO shard (number, probed_at) VALUES (:number, :now)
