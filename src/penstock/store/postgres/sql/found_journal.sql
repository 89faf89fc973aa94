-- journal_head_pkey. Whether events are kept is written down for penstock.submit(), by the process that opened last.
INSERT INTO penstock.journal_head AS kept (id, keep) VALUES (1, %(keep)s)
ON CONFLICT (id) DO UPDATE SET keep = excluded.keep WHERE kept.keep <> excluded.keep
