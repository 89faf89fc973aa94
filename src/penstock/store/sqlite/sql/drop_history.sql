-- The primary key of history, from the beginning of these spans.
DELETE FROM history WHERE span = :fine AND at < :until
