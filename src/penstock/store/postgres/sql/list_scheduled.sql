-- due: all of them are read and the newest kept.
SELECT seq, id FROM penstock.jobs
WHERE place = 0 AND seq < %(before)s
  AND (%(type)s::text IS NULL OR type = %(type)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
ORDER BY seq DESC
LIMIT %(limit)s
