-- tickets_out: the window and what runs, all read and the newest kept.
SELECT seq, id FROM penstock.jobs
WHERE place = 2 AND state = 'running' AND seq < %(before)s
  AND (%(type)s::text IS NULL OR type = %(type)s) AND (%(queue)s::text IS NULL OR queue = %(queue)s)
ORDER BY seq DESC
LIMIT %(limit)s
