-- The primary key of history, once for each length of span: from the span on that `since` lies in.
SELECT span, at, queue, type, move, before, after, bucket, jobs, millis
FROM history
WHERE span IN (10000, 60000, 3600000) AND at > :since - 3600000 AND at + span > :since
  AND (:queue IS NULL OR queue = :queue)
  AND (:type IS NULL OR type = :type)
