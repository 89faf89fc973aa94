-- unticketed and ticketed: all of them are read and the newest kept.
SELECT seq FROM (
    SELECT seq FROM jobs INDEXED BY unticketed
    WHERE state = 'queued' AND ticket_until IS NULL AND +seq < :before
      AND (:type IS NULL OR type = :type) AND (:queue IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM jobs INDEXED BY ticketed
    WHERE state = 'queued' AND ticket_until IS NOT NULL AND +seq < :before
      AND (:type IS NULL OR type = :type) AND (:queue IS NULL OR queue = :queue)
)
ORDER BY seq DESC
LIMIT :limit
