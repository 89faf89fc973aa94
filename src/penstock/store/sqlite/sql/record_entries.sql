-- The end of the journal. The WHERE drops the rows that only fill up the VALUES.
INSERT INTO journal (at, move, queue, type, before, after, jobs, versions, attempts, spans, reasons, ids)
SELECT * FROM (VALUES (?,?,?,?,?,?,?,?,?,?,?,?))
WHERE column1 IS NOT NULL
