UPDATE shard SET probed_at = :now
