UPDATE roles SET held_until = 0 WHERE role = :role AND holder = :holder
