-- The counts as of the last entry that has a number.
SELECT queue, type, state, jobs FROM penstock.counts
WHERE jobs <> 0
  AND (%(queue)s::text IS NULL OR queue = %(queue)s) AND (%(type)s::text IS NULL OR type = %(type)s)
ORDER BY queue, type, state
