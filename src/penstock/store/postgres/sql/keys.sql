-- keys_pkey
SELECT key, job, fingerprint FROM penstock.keys WHERE key = ANY (%(keys)s::text[])
