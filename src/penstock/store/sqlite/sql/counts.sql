SELECT queue, type, state, jobs FROM counts WHERE jobs <> 0 ORDER BY queue, type, state
