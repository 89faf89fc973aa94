-- The table's own b-tree: the first entry from a number on.
SELECT number, at FROM journal WHERE number >= :number ORDER BY number LIMIT 1
