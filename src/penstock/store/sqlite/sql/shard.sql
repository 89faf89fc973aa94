SELECT number FROM shard
