-- by_id.
SELECT type FROM jobs INDEXED BY by_id WHERE id = :id
