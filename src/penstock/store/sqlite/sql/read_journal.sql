-- The table's own b-tree. Entries without ids are no events.
SELECT number, at, move, queue, type, before, after, jobs, versions, attempts, reasons, ids
FROM journal
WHERE number > :after AND ids IS NOT NULL
ORDER BY number
