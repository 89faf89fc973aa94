-- away: all that runs. Its leases end here, and as not begun, so that the reaper takes them back and charges none of them.
UPDATE penstock.jobs
SET fence = (%(epoch)s << 22) + (fence & 4194303),
    lease_until = %(now)s,
    begun = false
WHERE place = 2 AND state = 'running'
