-- Under which fence a line was written, and its number among the lines of that attempt: one that is sent again is not kept twice.
ALTER TABLE job_logs ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_logs ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
