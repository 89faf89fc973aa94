-- journal_head_pkey, numbered. One snapshot: what the head says is there. Without entries there is one row, of the head.
-- What is before `oldest` is gone, and its index entries may still be there.
WITH head AS MATERIALIZED (SELECT number, oldest FROM penstock.journal_head WHERE id = 1),
next AS (
    SELECT next.*, sum(jobs) OVER (ORDER BY number) - jobs AS events_before
    FROM (
        SELECT number, at, move, type, queue, before, after, ids, versions, attempts, reasons, jobs
        FROM penstock.journal
        WHERE number > (SELECT greatest(%(after)s::bigint, oldest - 1) FROM head)
        ORDER BY number
        LIMIT %(limit)s
    ) AS next
)
SELECT head.oldest, head.number AS head, next.number, at, move, type, queue, before, after, ids, versions, attempts, reasons
FROM head LEFT JOIN next ON events_before < %(limit)s
ORDER BY next.number
