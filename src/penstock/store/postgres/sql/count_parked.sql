-- parked_due
SELECT state, count(*) FROM penstock.parked WHERE subscription = %(subscription)s GROUP BY state
