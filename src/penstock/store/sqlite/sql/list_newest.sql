-- The table's own b-tree, backwards.
SELECT seq FROM jobs NOT INDEXED
WHERE seq < :before AND (:state IS NULL OR state = :state)
  AND (:type IS NULL OR type = :type) AND (:queue IS NULL OR queue = :queue)
ORDER BY seq DESC
LIMIT :limit
