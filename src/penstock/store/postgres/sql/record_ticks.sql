-- The primary key of ticks guards each tick: one that has a job keeps it, and a second decision gives nothing back.
-- Only a skip may still become a job: that is what a backfill is for. DISTINCT ON, as one statement may not meet a row twice.
INSERT INTO penstock.ticks AS kept (schedule, tick_at, job, skipped)
SELECT DISTINCT ON (schedule, tick_at) schedule, tick_at, job, skipped
FROM unnest(%(schedules)s::text[], %(ticks)s::bigint[], %(jobs)s::uuid[], %(skips)s::text[])
    WITH ORDINALITY AS r (schedule, tick_at, job, skipped, place)
ORDER BY schedule, tick_at, job IS NULL, place
ON CONFLICT (schedule, tick_at) DO UPDATE SET job = excluded.job, skipped = NULL
WHERE kept.job IS NULL AND excluded.job IS NOT NULL
RETURNING job
