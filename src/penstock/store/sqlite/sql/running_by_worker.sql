-- leases: what runs, and nothing else.
SELECT worker, count(*) FROM jobs INDEXED BY leases
WHERE state = 'running'
GROUP BY worker
