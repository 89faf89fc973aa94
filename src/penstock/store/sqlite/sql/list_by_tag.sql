-- The primary key of job_tags, backwards.
SELECT jobs.seq
FROM job_tags CROSS JOIN jobs ON jobs.seq = job_tags.seq
WHERE tag = :tag AND job_tags.seq < :before AND (:state IS NULL OR state = :state)
  AND (:type IS NULL OR type = :type) AND (:queue IS NULL OR queue = :queue)
ORDER BY job_tags.seq DESC
LIMIT :limit
