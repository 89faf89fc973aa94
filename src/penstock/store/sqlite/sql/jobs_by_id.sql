-- by_id
SELECT
    -- include job
FROM jobs INDEXED BY by_id
WHERE id IN carray(:ids)
