-- The table's own b-tree.
SELECT
    -- include job
FROM jobs
WHERE seq IN carray(:seqs)
