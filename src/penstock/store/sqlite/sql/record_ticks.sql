-- The primary key of ticks guards each tick: one that has a job keeps it, and a second decision gives nothing back.
-- Only a skip may still become a job: that is what a backfill is for.
-- The WHERE drops the rows that only fill up the VALUES.
INSERT INTO ticks (schedule, tick_at, job, skipped)
SELECT * FROM (VALUES (?,?,?,?))
WHERE column1 IS NOT NULL
ON CONFLICT (schedule, tick_at) DO UPDATE SET job = excluded.job, skipped = NULL
WHERE ticks.job IS NULL AND excluded.job IS NOT NULL
RETURNING job
