SELECT reported, seen_at FROM penstock.workers ORDER BY id
