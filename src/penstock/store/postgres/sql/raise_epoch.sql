-- admission_pkey; the table is held, so that of several that find the same only one raises it. The epoch is the instant, as
-- `model.fences` has it.
UPDATE penstock.admission
SET epoch = greatest(epoch + 1, penstock.shard_now(%(now)s) / 1000 - 1767225600),
    lineage = penstock.lineage()
WHERE id = 1 AND (%(restored)s OR epoch = %(stale)s OR lineage <> penstock.lineage())
RETURNING epoch
