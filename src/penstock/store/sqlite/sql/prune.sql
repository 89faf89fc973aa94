-- finished: the first to end goes first. NOT INDEXED: the outer part goes by seq alone.
-- Running and waiting jobs have no completed_at and are not in it.
DELETE FROM jobs NOT INDEXED
WHERE seq IN (
    SELECT seq FROM jobs INDEXED BY finished
    WHERE state = :state AND completed_at <= :until AND anchor = 0
    ORDER BY completed_at
    LIMIT :limit
)
RETURNING seq, id, queue, type, owns_objects, state
