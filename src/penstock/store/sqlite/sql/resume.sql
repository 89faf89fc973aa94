DELETE FROM paused_queues WHERE queue = :queue
