-- parked_by_time
SELECT state, count(*) FROM parked WHERE subscription = :subscription GROUP BY state
