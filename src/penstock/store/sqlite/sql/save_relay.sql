-- The comparisons: a position never goes back, and stays where none is given.
INSERT INTO relays (subscription, number, place, failures, retry_at, delivered, failed)
VALUES (:subscription, :number, :place, :failures, :retry_at, :delivered, :failed)
ON CONFLICT DO UPDATE SET
    number = iif(
        coalesce((excluded.number, excluded.place) > (number, place), number IS NULL), excluded.number, number
    ),
    place = iif(
        coalesce((excluded.number, excluded.place) > (number, place), number IS NULL), excluded.place, place
    ),
    failures = excluded.failures,
    retry_at = excluded.retry_at,
    delivered = delivered + excluded.delivered,
    failed = failed + excluded.failed
