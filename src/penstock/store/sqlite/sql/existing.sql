-- by_id and by_key: the jobs that a submit may have met.
SELECT seq, id, idempotency_key, fingerprint FROM jobs INDEXED BY by_id WHERE id IN carray(:ids)
UNION ALL
SELECT seq, id, idempotency_key, fingerprint FROM jobs INDEXED BY by_key
WHERE idempotency_key IS NOT NULL AND idempotency_key IN carray(:keys)
