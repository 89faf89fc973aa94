-- admission_pkey and keys_pkey, in one snapshot: where the ring is the caller's, nothing placed by an older one is yet to come.
SELECT gate.ring, keys.key, keys.job, keys.fingerprint
FROM penstock.admission AS gate LEFT JOIN penstock.keys ON keys.key = ANY (%(keys)s::text[])
WHERE gate.id = 1
