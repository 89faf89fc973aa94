-- Under which fence a line was written, and its number among the lines of that attempt: one that is sent again is not kept twice.
ALTER TABLE penstock.job_logs ADD COLUMN fence integer NOT NULL DEFAULT 0, ADD COLUMN number bigint NOT NULL DEFAULT 0;
