INSERT INTO penstock.job_logs (seq, position, at, attempt, size, stream, text)
SELECT %(seq)s, lines.*
FROM unnest(
    %(positions)s::bigint[], %(ats)s::bigint[], %(attempts)s::bigint[], %(sizes)s::bigint[], %(streams)s::text[],
    %(texts)s::text[]
) AS lines
