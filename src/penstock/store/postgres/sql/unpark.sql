-- parked_pkey
DELETE FROM penstock.parked
USING unnest(%(jobs)s::uuid[], %(versions)s::bigint[]) AS gone (job, version)
WHERE parked.subscription = %(subscription)s AND parked.job = ANY (ARRAY[gone.job])
  AND parked.version = ANY (ARRAY[gone.version::integer])
