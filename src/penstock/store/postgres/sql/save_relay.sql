-- relays_pkey. The comparison: a position never goes back, and stays where none is given.
INSERT INTO penstock.relays AS kept (subscription, number, index, failures, retry_at, delivered, failed)
VALUES (%(subscription)s, %(number)s, %(index)s, %(failures)s, %(retry_at)s, %(delivered)s, %(failed)s)
ON CONFLICT (subscription) DO UPDATE
SET (number, index) = (
        SELECT number, index
        FROM (VALUES (kept.number, kept.index), (excluded.number, excluded.index)) AS place (number, index)
        ORDER BY number DESC NULLS LAST, index DESC
        LIMIT 1
    ),
    failures = excluded.failures,
    retry_at = excluded.retry_at,
    delivered = kept.delivered + excluded.delivered,
    failed = kept.failed + excluded.failed
