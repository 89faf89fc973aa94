DELETE FROM penstock.workers WHERE id = %(id)s
