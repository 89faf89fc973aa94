-- schedules_by_name
DELETE FROM schedules INDEXED BY schedules_by_name WHERE name = :name
