-- The primary key of schedules. The guard of every tick: the schedule is the one that was read (version), no tick was
-- decided since (next and pending tick), and it is not paused, unless an operator asks by hand. Of many schedulers that
-- have read the same, one gets a row back: the others wait for its lock, and then these conditions are checked again.
-- Locks are taken by name, so that two batches cannot wait for each other.
WITH decided AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %(names)s::text[], %(versions)s::bigint[], %(expected_ticks)s::bigint[], %(expected_pending)s::bigint[],
        %(next_ticks)s::bigint[], %(pending_ticks)s::bigint[], %(last_ticks)s::bigint[], %(by_hand)s::boolean[]
    ) AS d (name, version, expected_tick_at, expected_pending_at, next_tick_at, pending_tick_at, last_tick_at, by_hand)
),
locked AS MATERIALIZED (
    SELECT name FROM penstock.schedules WHERE name = ANY(%(names)s) ORDER BY name FOR UPDATE
)
UPDATE penstock.schedules AS kept
SET next_tick_at = decided.next_tick_at,
    pending_tick_at = decided.pending_tick_at,
    last_tick_at = greatest(kept.last_tick_at, decided.last_tick_at)
FROM locked
JOIN decided USING (name)
WHERE kept.name = locked.name
  AND kept.version = decided.version
  AND kept.next_tick_at IS NOT DISTINCT FROM decided.expected_tick_at
  AND kept.pending_tick_at IS NOT DISTINCT FROM decided.expected_pending_at
  AND (NOT kept.paused OR decided.by_hand)
RETURNING kept.name
