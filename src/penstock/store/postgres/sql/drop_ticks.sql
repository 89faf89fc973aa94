-- The primary key of ticks.
DELETE FROM penstock.ticks WHERE schedule = %(name)s
