-- The anchor of a batch carries its key, and is kept for the longest retention: its own index, so that pruning never walks
-- over anchors that have to stay.
ALTER TABLE jobs ADD COLUMN anchor INTEGER NOT NULL DEFAULT 0 CHECK (anchor IN (0, 1));
DROP INDEX finished;
CREATE INDEX finished ON jobs (state, completed_at) WHERE completed_at IS NOT NULL AND anchor = 0;
CREATE INDEX finished_anchors ON jobs (completed_at) WHERE completed_at IS NOT NULL AND anchor = 1;
