-- by_id: what became of jobs whose fence was refused.
SELECT id, fence FROM jobs INDEXED BY by_id WHERE id IN carray(:ids)
