-- by_id. The deadline is compared again: a job that has got a new ticket meanwhile keeps it.
UPDATE jobs INDEXED BY by_id
SET ticket_until = NULL
WHERE id IN (SELECT value FROM carray(:ids)) AND state = 'queued' AND ticket_until <= :now
