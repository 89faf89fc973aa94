-- deliveries_by_age, the oldest first.
WITH old AS MATERIALIZED (
    SELECT ctid AS row FROM penstock.deliveries WHERE at <= %(until)s ORDER BY at LIMIT %(limit)s
),
gone AS (
    DELETE FROM penstock.deliveries USING old WHERE deliveries.ctid = old.row RETURNING 1
)
SELECT count(*) FROM gone
