-- by_id; the tags are those of the rows just inserted.
INSERT OR IGNORE INTO job_tags (tag, seq)
SELECT tag.value, jobs.seq
FROM carray(:ids) AS submitted
CROSS JOIN jobs INDEXED BY by_id ON jobs.id = submitted.value
CROSS JOIN json_each(jobs.tags) AS tag
