-- by_id. The fence: only the owner of the newest claim may say what kind of job it is.
UPDATE jobs INDEXED BY by_id SET type = :type WHERE id = :id AND fence = :fence AND state = 'running' AND type <> :type
RETURNING queue
