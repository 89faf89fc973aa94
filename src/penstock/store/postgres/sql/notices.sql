SELECT kind, name, value, told_at FROM penstock.notices ORDER BY kind, name
