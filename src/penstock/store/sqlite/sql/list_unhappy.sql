-- unhappy, backwards; it holds all that is asked of it.
SELECT seq FROM jobs INDEXED BY unhappy
WHERE state IN ('failed', 'cancelled', 'expired') AND state = :state AND seq < :before
  AND (:type IS NULL OR type = :type) AND (:queue IS NULL OR queue = :queue)
ORDER BY seq DESC
LIMIT :limit
