-- journal_head_pkey, fresh. Whether there is anything to number: a read alone, so that an idle shard writes nothing.
SELECT number, EXISTS (SELECT 1 FROM penstock.journal WHERE number IS NULL) FROM penstock.journal_head WHERE id = 1
