-- relays_pkey
SELECT number, index, failures, retry_at, delivered, failed FROM penstock.relays WHERE subscription = %(subscription)s
