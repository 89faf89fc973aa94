DELETE FROM workers WHERE id = :id
