-- The table's own b-tree, from its beginning.
DELETE FROM journal WHERE number <= :number
