-- Whether the attempt under the newest lease was handed to a handler, as its worker told with a renew; and whether the job
-- must run alone in its worker, as `alone` says of its executor.
ALTER TABLE penstock.jobs
    ADD COLUMN begun boolean NOT NULL DEFAULT false,
    ADD COLUMN alone_in_worker boolean NOT NULL DEFAULT false;
