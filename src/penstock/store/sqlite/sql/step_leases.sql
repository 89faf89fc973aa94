-- leases
UPDATE jobs INDEXED BY leases SET lease_until = lease_until + :step WHERE state = 'running'
