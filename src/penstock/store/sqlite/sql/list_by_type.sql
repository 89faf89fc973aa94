-- by_type, backwards: seq ends it.
SELECT seq FROM jobs INDEXED BY by_type
WHERE type = :type AND seq < :before AND (:state IS NULL OR state = :state)
  AND (:queue IS NULL OR queue = :queue)
ORDER BY seq DESC
LIMIT :limit
