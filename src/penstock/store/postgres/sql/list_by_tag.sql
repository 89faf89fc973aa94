-- job_tags_pkey, backwards; then jobs_pkey and ended_pkey. The tag is not compared by =: then any index in order of seq
-- would seem to do, and read what has other tags.
SELECT job_tags.seq, job_tags.job
FROM penstock.job_tags
CROSS JOIN LATERAL (
    SELECT type, queue, state FROM penstock.jobs WHERE jobs.id = job_tags.job
    UNION ALL
    SELECT type, queue, state FROM penstock.ended WHERE ended.id = job_tags.job
) AS job
WHERE (job_tags.tag, job_tags.seq) < (%(tag)s, %(before)s) AND job_tags.tag >= %(tag)s
  AND (%(state)s::text IS NULL OR job.state = %(state)s)
  AND (%(type)s::text IS NULL OR job.type = %(type)s) AND (%(queue)s::text IS NULL OR job.queue = %(queue)s)
ORDER BY job_tags.tag DESC, job_tags.seq DESC
LIMIT %(limit)s
