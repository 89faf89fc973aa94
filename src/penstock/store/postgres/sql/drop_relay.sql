-- relays_pkey, parked_pkey, deliveries_of
WITH unparked AS (DELETE FROM penstock.parked WHERE subscription = %(subscription)s),
unlogged AS (DELETE FROM penstock.deliveries WHERE subscription = %(subscription)s)
DELETE FROM penstock.relays WHERE subscription = %(subscription)s
