-- The anchor of a batch carries its key, and is kept for the longest retention: its own index, so that pruning never walks
-- over anchors that have to stay.
ALTER TABLE penstock.jobs ADD COLUMN anchor boolean NOT NULL DEFAULT false;
ALTER TABLE penstock.ended ADD COLUMN anchor boolean NOT NULL DEFAULT false;
DROP INDEX penstock.finished;
CREATE INDEX finished ON penstock.ended (state, completed_at) WHERE NOT anchor;
CREATE INDEX finished_anchors ON penstock.ended (completed_at) WHERE anchor;
