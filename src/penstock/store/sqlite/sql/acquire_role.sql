-- The guard: a role that another holds is left alone until its time has passed.
INSERT INTO roles (role, holder, fence, held_until) VALUES (:role, :holder, 1, :held_until)
ON CONFLICT DO UPDATE
SET fence = roles.fence + (roles.holder <> excluded.holder),
    holder = excluded.holder,
    held_until = excluded.held_until
WHERE roles.holder = excluded.holder OR roles.held_until <= :now
RETURNING fence
