-- The primary key of job_logs, from its right end. A number counts for the attempt that it was given in.
SELECT position, size, CASE WHEN greatest(fence, whole_fence) = %(fence)s THEN number ELSE 0 END
FROM penstock.job_logs WHERE seq = %(seq)s ORDER BY position DESC LIMIT 1
