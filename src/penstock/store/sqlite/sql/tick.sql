-- schedules_by_name. The guard of every tick: the schedule is the one that was read (version), no tick was decided since
-- (next and pending tick), and it is not paused, unless an operator asks by hand. Of many schedulers that have read the same, one gets a row back.
WITH decided (
    name, version, expected_tick_at, expected_pending_at, next_tick_at, pending_tick_at, last_tick_at, by_hand
) AS MATERIALIZED (VALUES (?,?,?,?,?,?,?,?))
UPDATE schedules INDEXED BY schedules_by_name
SET next_tick_at = decided.next_tick_at,
    pending_tick_at = decided.pending_tick_at,
    last_tick_at = max(
        coalesce(schedules.last_tick_at, decided.last_tick_at), coalesce(decided.last_tick_at, schedules.last_tick_at)
    )
FROM decided
WHERE schedules.name = decided.name
  AND schedules.version = decided.version
  AND schedules.next_tick_at IS decided.expected_tick_at
  AND schedules.pending_tick_at IS decided.expected_pending_at
  AND (NOT paused OR decided.by_hand)
RETURNING name
