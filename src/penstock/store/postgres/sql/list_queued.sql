-- unticketed and tickets_out: all of them are read and the newest kept.
SELECT seq, id FROM (
    SELECT seq, id FROM penstock.jobs
    WHERE place = 1 AND seq < %(before)s
      AND (%(type)s::text IS NULL OR type = %(type)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
    UNION ALL
    SELECT seq, id FROM penstock.jobs
    WHERE place = 2 AND state = 'queued' AND seq < %(before)s
      AND (%(type)s::text IS NULL OR type = %(type)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
) AS waiting
ORDER BY seq DESC
LIMIT %(limit)s
