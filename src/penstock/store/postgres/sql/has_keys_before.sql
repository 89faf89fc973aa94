-- Reads all keys when none is that old. Asked once an hour at most, after a ring has changed and the retention has passed.
SELECT EXISTS (SELECT 1 FROM penstock.keys WHERE job < %(before)s::uuid)
