SELECT penstock.held_keys(%(keys)s::text[])
