-- parked_pkey or parked_due: all of one subscription.
SELECT state, count(*) FROM penstock.parked WHERE subscription = %(subscription)s GROUP BY state
