-- The primary key of job_logs.
DELETE FROM job_logs WHERE seq IN carray(:seqs)
