-- by_id: ids begin with their time.
SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY by_id WHERE id < :before AND idempotency_key IS NOT NULL)
