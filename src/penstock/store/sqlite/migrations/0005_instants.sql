-- Instants that come from outside lie from 1970 to 2999, as `model.timing` has it: beyond, rows could not be read back.
UPDATE jobs SET
    due_at = min(max(due_at, 0), 32503679999999),
    expires_at = min(max(expires_at, 0), 32503679999999),
    tick_at = min(max(tick_at, 0), 32503679999999)
WHERE due_at NOT BETWEEN 0 AND 32503679999999
   OR expires_at NOT BETWEEN 0 AND 32503679999999
   OR tick_at NOT BETWEEN 0 AND 32503679999999;
UPDATE schedules SET
    end_at = min(max(end_at, 0), 32503679999999),
    next_tick_at = min(max(next_tick_at, 0), 32503679999999),
    pending_tick_at = min(max(pending_tick_at, 0), 32503679999999),
    last_tick_at = min(max(last_tick_at, 0), 32503679999999)
WHERE end_at NOT BETWEEN 0 AND 32503679999999
   OR next_tick_at NOT BETWEEN 0 AND 32503679999999
   OR pending_tick_at NOT BETWEEN 0 AND 32503679999999
   OR last_tick_at NOT BETWEEN 0 AND 32503679999999;
DELETE FROM ticks WHERE tick_at NOT BETWEEN 0 AND 32503679999999;

-- A constraint is added by changing the text of its table, as SQLite's documentation of ALTER TABLE describes: the rows
-- stay where they are, while to copy them all would take a large file minutes. SQLite looks at a CHECK only where one of
-- its columns is written: an insert pays for a comparison, a claim or a settle for nothing.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(replace(replace(sql,
    'due_at INTEGER NOT NULL', 'due_at INTEGER NOT NULL CHECK (due_at BETWEEN 0 AND 32503679999999)'),
    'expires_at INTEGER', 'expires_at INTEGER CHECK (expires_at BETWEEN 0 AND 32503679999999)'),
    'tick_at INTEGER', 'tick_at INTEGER CHECK (tick_at BETWEEN 0 AND 32503679999999)')
WHERE type = 'table' AND name = 'jobs';
UPDATE sqlite_schema SET sql = replace(replace(sql,
    'end_at INTEGER', 'end_at INTEGER CHECK (end_at BETWEEN 0 AND 32503679999999)'),
    'next_tick_at INTEGER', 'next_tick_at INTEGER CHECK (next_tick_at BETWEEN 0 AND 32503679999999)')
WHERE type = 'table' AND name = 'schedules';
UPDATE sqlite_schema SET sql = replace(sql,
    'tick_at INTEGER NOT NULL', 'tick_at INTEGER NOT NULL CHECK (tick_at BETWEEN 0 AND 32503679999999)')
WHERE type = 'table' AND name = 'ticks';
PRAGMA writable_schema = RESET;
