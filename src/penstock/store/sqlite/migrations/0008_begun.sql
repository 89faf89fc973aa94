-- Whether the attempt under the newest lease was handed to a handler, as its worker told with a renew; and whether the job
-- must run alone in its worker, as `alone` says of its executor.
ALTER TABLE jobs ADD COLUMN begun INTEGER NOT NULL DEFAULT 0 CHECK (begun IN (0, 1));
ALTER TABLE jobs ADD COLUMN alone_in_worker INTEGER NOT NULL DEFAULT 0 CHECK (alone_in_worker IN (0, 1));
