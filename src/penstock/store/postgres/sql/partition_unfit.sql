-- ended_default_pkey: whether a partition of this range can no longer be made, as some of it is in the default one.
SELECT EXISTS (SELECT 1 FROM penstock.ended_default WHERE id >= %(first)s::uuid AND id < %(past)s::uuid)
