-- The primary key of history: the end of the coarse span that the row after `limit` others is in.
SELECT coalesce(
    (
        SELECT at - at % :coarse + :coarse FROM history
        WHERE span = :fine AND at < :until
        ORDER BY at
        LIMIT 1 OFFSET :limit
    ),
    :until
)
