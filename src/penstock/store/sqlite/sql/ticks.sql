-- The primary key of ticks, backwards.
SELECT tick_at, job, skipped FROM ticks
WHERE schedule = :name AND tick_at < :before
ORDER BY tick_at DESC
LIMIT :limit
