-- The primary key of schedules.
DELETE FROM penstock.schedules WHERE name = %(name)s
