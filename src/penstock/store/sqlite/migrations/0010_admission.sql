-- What this shard takes: the epoch of the ring that it was told, and whether it is closed to new jobs and schedules.
CREATE TABLE admission (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    ring INTEGER NOT NULL,
    closed INTEGER NOT NULL CHECK (closed IN (0, 1))
) STRICT;
INSERT INTO admission (id, ring, closed) VALUES (1, 0, 0);
