-- history_pkey, from the first span of each length that touches the instant.
SELECT history.at, history.span, queue, type, move, nullif(before, ''), nullif(after, ''), nullif(bucket, -1), jobs, millis
FROM unnest(%(spans)s::bigint[]) AS length (span)
CROSS JOIN LATERAL (
    SELECT * FROM penstock.history
    WHERE history.span = length.span::integer AND history.at > %(since)s - length.span
      AND (%(queue)s::text IS NULL OR queue = %(queue)s) AND (%(type)s::text IS NULL OR type = %(type)s)
) AS history
ORDER BY history.at, history.span, queue, type, move, before, after, bucket
