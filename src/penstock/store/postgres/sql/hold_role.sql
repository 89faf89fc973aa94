-- roles_pkey. Locked until the commit, so that the role cannot pass to another holder before; after a wait for another holder
-- the fence is compared again.
SELECT 1 FROM penstock.roles WHERE role = %(role)s AND fence = %(fence)s FOR UPDATE
