-- notices_pkey. The epoch of a ring is the instant at which it was written.
UPDATE penstock.admission
SET ring = coalesce((SELECT told_at FROM penstock.notices WHERE kind = 'ring' AND name = 'ring'), 0)
WHERE id = 1
