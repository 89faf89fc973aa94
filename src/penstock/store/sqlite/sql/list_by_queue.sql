-- by_queue, backwards: seq ends it.
SELECT seq FROM jobs INDEXED BY by_queue
WHERE queue = :queue AND seq < :before AND (:state IS NULL OR state = :state)
  AND (:type IS NULL OR type = :type)
ORDER BY seq DESC
LIMIT :limit
