-- The guard of what the holder of a role writes: a holder that was replaced has an older fence.
SELECT 1 FROM roles WHERE role = :role AND fence = :fence
