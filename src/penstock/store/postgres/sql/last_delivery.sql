-- deliveries_of, backwards: the last record.
SELECT id, delivered FROM penstock.deliveries WHERE subscription = %(subscription)s ORDER BY at DESC, id DESC LIMIT 1
