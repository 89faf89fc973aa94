-- The primary key of history, from the beginning of the fine spans.
INSERT INTO history (span, at, queue, type, move, before, after, bucket, jobs, millis)
SELECT :coarse, at - at % :coarse, queue, type, move, before, after, bucket, sum(jobs), sum(millis)
FROM history
WHERE span = :fine AND at < :until
GROUP BY at - at % :coarse, queue, type, move, before, after, bucket
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs, millis = millis + excluded.millis
