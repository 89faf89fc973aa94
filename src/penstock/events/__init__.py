"""Job events: read from the journals of shards, streamed to clients and delivered to the sinks of subscriptions."""
