-- due: the earliest first.
SELECT queue, due_at FROM jobs INDEXED BY due
WHERE state = 'scheduled' AND due_at < :before
ORDER BY due_at
LIMIT :limit
