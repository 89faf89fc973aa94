-- journal_head_pkey, numbered. Bisection: numbers have no gaps, and latest_at grows with them.
WITH RECURSIVE head AS MATERIALIZED (SELECT number, oldest FROM penstock.journal_head WHERE id = 1),
bounds (earlier, later) AS (
    SELECT oldest - 1, number + 1 FROM head
    UNION ALL
    SELECT CASE WHEN middle.latest_at < %(at)s THEN middle.number ELSE earlier END,
        CASE WHEN middle.latest_at < %(at)s THEN later ELSE middle.number END
    FROM bounds, LATERAL (
        SELECT number, latest_at FROM penstock.journal WHERE number = earlier + (later - earlier) / 2 LIMIT 1
    ) AS middle
    WHERE later - earlier > 1
)
SELECT max(earlier) FROM bounds
