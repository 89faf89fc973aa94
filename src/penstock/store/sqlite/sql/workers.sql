SELECT reported, seen_at FROM workers ORDER BY id
