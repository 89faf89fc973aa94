SELECT number, place, failures, retry_at, delivered, failed FROM relays WHERE subscription = :subscription
