DELETE FROM parked WHERE subscription = :subscription
