-- What must be known on every shard. `value` is JSON; NULL withdraws. Types and pauses are two kinds of it.
CREATE TABLE notices (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    told_at INTEGER NOT NULL,
    value BLOB,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

INSERT INTO notices (kind, name, told_at, value) SELECT 'type', name, 0, CAST(declared AS BLOB) FROM types;
INSERT INTO notices (kind, name, told_at, value) SELECT 'pause', queue, 0, CAST('true' AS BLOB) FROM paused_queues;
DROP TABLE types;
DROP TABLE paused_queues;
