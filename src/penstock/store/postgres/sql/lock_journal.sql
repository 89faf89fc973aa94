-- journal_head_pkey. A statement of its own: the snapshot of the next one is then newer than what the last process that held
-- the lock has numbered. Skipped, not waited for: that process numbers these too, or the next call does.
SELECT number, latest_at FROM penstock.journal_head WHERE id = 1 FOR UPDATE SKIP LOCKED
