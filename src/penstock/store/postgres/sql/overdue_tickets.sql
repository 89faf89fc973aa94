-- away: the window and what runs, all looked at; the primary key, in whose order they come, would lead through the backlog.
WITH clock AS MATERIALIZED (SELECT penstock.shard_now(%(now)s) AS now),
overdue AS MATERIALIZED (
    SELECT id FROM penstock.jobs
    WHERE place = 2 AND state = 'queued' AND ticket_until <= (SELECT now FROM clock)
)
SELECT id FROM overdue
WHERE id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY id
LIMIT %(limit)s
