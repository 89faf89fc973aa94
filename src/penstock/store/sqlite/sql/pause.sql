INSERT OR IGNORE INTO paused_queues (queue) VALUES (:queue)
