-- The primary keys of jobs and ended, then that of job_logs.
SELECT position, at, stream, text, attempt FROM penstock.job_logs
WHERE seq = (
    SELECT seq FROM penstock.jobs WHERE id = %(job)s
    UNION ALL
    SELECT seq FROM penstock.ended WHERE id = %(job)s
    LIMIT 1
) AND position > %(after)s
ORDER BY position
LIMIT %(limit)s
