INSERT INTO penstock.job_logs (seq, whole_fence, position, at, attempt, size, stream, text, number)
SELECT %(seq)s, %(fence)s, lines.*
FROM unnest(
    %(positions)s::bigint[], %(ats)s::bigint[], %(attempts)s::bigint[], %(sizes)s::bigint[], %(streams)s::text[],
    %(texts)s::text[], %(numbers)s::bigint[]
) AS lines
