-- ticks_by_age, the oldest first. One that is being made up for just now is left to the next time.
DELETE FROM penstock.ticks
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.ticks
    WHERE tick_at <= %(until)s
    ORDER BY tick_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
))
