UPDATE admission SET epoch = :epoch WHERE id = 1
