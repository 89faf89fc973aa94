-- leases: all that runs. Its leases end here, and as not begun, so that the reaper takes them back and charges none of them.
UPDATE jobs INDEXED BY leases
SET fence = (:epoch << 22) + (fence & 4194303),
    lease_until = :now,
    begun = 0
WHERE state = 'running'
