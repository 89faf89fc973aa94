-- by_id, then the primary key of job_logs.
SELECT position, at, stream, text, job_logs.attempt
FROM jobs INDEXED BY by_id
CROSS JOIN job_logs ON job_logs.seq = jobs.seq
WHERE id = :id AND position > :after
ORDER BY position
LIMIT :limit
