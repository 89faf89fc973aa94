SELECT number FROM penstock.shard
