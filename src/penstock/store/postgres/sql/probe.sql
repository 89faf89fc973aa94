UPDATE penstock.shard SET probed_at = (SELECT now FROM penstock.fenced_clock(%(now)s))
