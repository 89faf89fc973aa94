-- The epoch of the shard: raised when its file was put back from a backup. It is the upper part of every fence that is given
-- from then on (`model.fences`: fence >> 22), so that no fence is given twice, whatever was lost.
ALTER TABLE admission ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
