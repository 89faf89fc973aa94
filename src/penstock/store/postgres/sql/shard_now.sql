SELECT penstock.shard_now(%(now)s)
