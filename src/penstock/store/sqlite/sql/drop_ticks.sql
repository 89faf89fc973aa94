-- The primary key of ticks.
DELETE FROM ticks WHERE schedule = :name
