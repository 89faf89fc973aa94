-- By queue and type: a worker finds the next job of its own types, however many of other types wait in the same queue.
DROP INDEX penstock.unticketed;
CREATE INDEX unticketed ON penstock.jobs (queue, type, priority DESC, seq) WHERE place = 1;
