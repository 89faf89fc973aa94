-- The guard: a role that another holds is left alone until its time has passed.
INSERT INTO penstock.roles AS kept (role, holder, fence, held_until) VALUES (%(role)s, %(holder)s, 1, %(held_until)s)
ON CONFLICT (role) DO UPDATE
SET fence = kept.fence + (kept.holder <> excluded.holder)::int,
    holder = excluded.holder,
    held_until = excluded.held_until
WHERE kept.holder = excluded.holder OR kept.held_until <= %(now)s
RETURNING fence
