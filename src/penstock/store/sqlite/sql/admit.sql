UPDATE admission SET closed = :closed WHERE id = 1
