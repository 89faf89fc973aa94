-- deliveries_of, backwards.
SELECT at, delivered, first, last, events, attempt, status, took, detail
FROM penstock.deliveries
WHERE subscription = %(subscription)s AND at < %(before)s
ORDER BY at DESC, id DESC
LIMIT %(limit)s
