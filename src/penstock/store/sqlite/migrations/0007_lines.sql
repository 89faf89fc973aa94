-- By queue and type: a worker finds the next job of its own types, however many of other types wait in the same queue.
DROP INDEX unticketed;
CREATE INDEX unticketed ON jobs (queue, type, priority DESC) WHERE state = 'queued' AND ticket_until IS NULL;
