UPDATE penstock.shard SET probed_at = penstock.shard_now(%(now)s)
