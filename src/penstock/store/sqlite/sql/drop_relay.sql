DELETE FROM relays WHERE subscription = :subscription
