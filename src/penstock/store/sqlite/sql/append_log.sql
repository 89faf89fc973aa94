INSERT INTO job_logs (seq, position, at, attempt, size, stream, text, fence, number)
SELECT * FROM (VALUES (?,?,?,?,?,?,?,?,?))
WHERE column1 IS NOT NULL
