-- history_pkey, the oldest spans of one length first.
WITH old AS MATERIALIZED (
    SELECT ctid AS row FROM penstock.history
    WHERE span = %(span)s::integer AND at <= %(until)s - %(span)s
    ORDER BY at
    LIMIT %(limit)s
),
gone AS (
    DELETE FROM penstock.history USING old WHERE history.ctid = old.row RETURNING 1
)
SELECT count(*) FROM gone
