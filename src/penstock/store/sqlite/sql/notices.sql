SELECT kind, name, value, told_at FROM notices ORDER BY kind, name
