INSERT INTO penstock.deliveries (subscription, at, delivered, first, last, events, attempt, status, took, detail)
VALUES (
    %(subscription)s, %(at)s, %(delivered)s, %(first)s, %(last)s, %(events)s, %(attempt)s, %(status)s, %(took)s, %(detail)s
)
RETURNING id
