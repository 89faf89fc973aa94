-- journal_head_pkey, numbered: from the oldest, as long as all up to there is past its retention. So no number between two that
-- are there is missing. The lock on the head is for all
-- that the transaction prunes: nothing else numbers, prunes or folds meanwhile.
WITH head AS MATERIALIZED (SELECT oldest FROM penstock.journal_head WHERE id = 1 FOR UPDATE),
old AS MATERIALIZED (
    SELECT row, number
    FROM (
        SELECT ctid AS row, number, latest_at FROM penstock.journal
        WHERE number >= (SELECT oldest FROM head)
        ORDER BY number
        LIMIT %(limit)s
    ) AS first
    WHERE latest_at <= %(until)s
),
gone AS (
    DELETE FROM penstock.journal USING old WHERE journal.ctid = old.row
),
moved AS (
    UPDATE penstock.journal_head SET oldest = coalesce((SELECT max(number) + 1 FROM old), oldest) WHERE id = 1
)
SELECT count(*) FROM old
