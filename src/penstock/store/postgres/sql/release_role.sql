UPDATE penstock.roles SET held_until = 0 WHERE role = %(role)s AND holder = %(holder)s
