-- The table's own b-tree.
SELECT number, at, move, queue, type, before, after, jobs, spans
FROM journal
WHERE number > :after
ORDER BY number
LIMIT :limit
