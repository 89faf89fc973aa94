DELETE FROM counts WHERE jobs = 0
