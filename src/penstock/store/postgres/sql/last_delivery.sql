-- deliveries_pkey, backwards: the record that was written last.
SELECT id, delivered FROM penstock.deliveries WHERE subscription = %(subscription)s ORDER BY id DESC LIMIT 1
