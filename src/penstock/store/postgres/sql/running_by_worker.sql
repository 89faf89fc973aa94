-- away: the window and what runs.
SELECT worker, count(*) FROM penstock.jobs
WHERE place = 2 AND state = 'running'
GROUP BY worker
