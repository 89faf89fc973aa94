-- leases: all of them are read and the newest kept.
SELECT seq FROM jobs INDEXED BY leases
WHERE state = 'running' AND +seq < :before
  AND (:type IS NULL OR type = :type) AND (:queue IS NULL OR queue = :queue)
ORDER BY +seq DESC
LIMIT :limit
