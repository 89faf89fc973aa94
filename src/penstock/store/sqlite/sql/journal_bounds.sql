-- The greatest number that was given, the least that is kept, and the last that is in the history.
SELECT
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'journal'), 0),
    (SELECT min(number) FROM journal),
    (SELECT folded FROM journal_fold WHERE id = 1)
