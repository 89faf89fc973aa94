-- ticks_pkey, backwards. The schedule is not compared by =: then ticks_by_age would seem to do, and read all others too.
SELECT tick_at, job, skipped FROM penstock.ticks
WHERE (schedule, tick_at) < (%(name)s, %(before)s) AND schedule >= %(name)s
ORDER BY schedule DESC, tick_at DESC
LIMIT %(limit)s
