-- workers_by_age, from its end: those that were not seen for longer are not read.
SELECT reported, seen_at FROM penstock.workers
WHERE seen_at > %(after)s AND seen_at <= %(until)s
ORDER BY seen_at DESC LIMIT %(limit)s
