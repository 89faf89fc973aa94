SELECT queue FROM paused_queues
