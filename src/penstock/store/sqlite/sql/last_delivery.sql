-- The table's own b-tree and deliveries_of: the record that was written last.
SELECT seq, delivered FROM deliveries INDEXED BY deliveries_of
WHERE subscription = :subscription
ORDER BY at DESC, seq DESC
LIMIT 1
