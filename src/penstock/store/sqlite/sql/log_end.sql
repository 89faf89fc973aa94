-- by_id, then the last line by the primary key of job_logs. The fence keeps a lost owner's lines out of the log.
SELECT jobs.seq, coalesce(position, 0), coalesce(size, 0), iif(job_logs.fence = :fence, number, 0)
FROM jobs INDEXED BY by_id
LEFT JOIN job_logs ON job_logs.seq = jobs.seq
WHERE id = :id AND jobs.fence = :fence AND state = 'running'
ORDER BY position DESC
LIMIT 1
