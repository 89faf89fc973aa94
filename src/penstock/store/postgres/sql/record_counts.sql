INSERT INTO penstock.count_changes (queue, type, before, after, jobs)
SELECT * FROM unnest(
    %(queues)s::text[], %(types)s::text[], %(before)s::text[], %(after)s::text[], %(jobs)s::bigint[]
)
