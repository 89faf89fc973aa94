UPDATE penstock.admission SET closed = %(closed)s WHERE id = 1
