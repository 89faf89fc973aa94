-- parked_by_job
WITH gone (subscription, job, version) AS MATERIALIZED (VALUES (?,?,?))
DELETE FROM parked WHERE (subscription, job, version) IN (SELECT * FROM gone)
