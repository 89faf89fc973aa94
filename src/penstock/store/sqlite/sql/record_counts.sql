-- The primary key of counts. The WHERE drops the rows that only fill up the VALUES.
INSERT INTO counts (queue, type, state, jobs)
SELECT * FROM (VALUES (?,?,?,?))
WHERE column1 IS NOT NULL
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs
