DELETE FROM deliveries WHERE subscription = :subscription
