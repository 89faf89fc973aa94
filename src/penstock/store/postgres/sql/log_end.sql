-- The primary key of job_logs, from its right end.
SELECT position, size FROM penstock.job_logs WHERE seq = %(seq)s ORDER BY position DESC LIMIT 1
