-- Not transaction_read_only: the transaction that asks is read-only by its own will.
SELECT
    NOT pg_is_in_recovery() AND NOT current_setting('default_transaction_read_only')::boolean,
    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
