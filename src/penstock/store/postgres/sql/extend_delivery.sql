-- deliveries_pkey
UPDATE penstock.deliveries
SET at = greatest(at, %(at)s), last = %(last)s, events = events + %(events)s, attempt = %(attempt)s, status = %(status)s,
    took = %(took)s, detail = %(detail)s
WHERE id = %(id)s
