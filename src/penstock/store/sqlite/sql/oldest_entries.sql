-- The table's own b-tree, from its beginning. What is not in the history yet stays.
SELECT number, at FROM journal
WHERE number <= (SELECT folded FROM journal_fold WHERE id = 1)
ORDER BY number
LIMIT :limit
