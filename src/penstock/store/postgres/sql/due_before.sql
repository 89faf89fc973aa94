-- due: the earliest first.
SELECT queue, due_at FROM penstock.jobs
WHERE place = 0 AND due_at < %(before)s
ORDER BY due_at, seq
LIMIT %(limit)s
