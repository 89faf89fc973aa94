-- The table's own b-tree, from its right end.
SELECT coalesce(max(seq), 0) FROM jobs
