-- The guard: what was added to the history meanwhile is not added again.
UPDATE journal_fold SET folded = :head WHERE id = 1 AND folded = :folded RETURNING folded
