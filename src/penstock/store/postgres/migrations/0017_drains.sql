-- Until when a worker that is asked to drain may take; the last possible instant: as long as it takes.
ALTER TABLE penstock.workers ADD COLUMN drain_until bigint;
