-- finished_anchors: the first to end goes first. NOT INDEXED: the outer part goes by seq alone.
DELETE FROM jobs NOT INDEXED
WHERE seq IN (
    SELECT seq FROM jobs INDEXED BY finished_anchors
    WHERE completed_at <= :until AND anchor = 1
    ORDER BY completed_at
    LIMIT :limit
)
RETURNING seq, id, queue, type, owns_objects, state
