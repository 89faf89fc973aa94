-- The primary key of history. The WHERE drops the rows that only fill up the VALUES.
INSERT INTO history (span, at, queue, type, move, before, after, bucket, jobs, millis)
SELECT * FROM (VALUES (?,?,?,?,?,?,?,?,?,?))
WHERE column1 IS NOT NULL
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs, millis = millis + excluded.millis
