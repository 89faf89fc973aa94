-- finished and finished_anchors of one partition: whether all that is in it is past its retention; then ended_pkey, whether
-- it is not too much.
SELECT NOT EXISTS (
    SELECT 1 FROM penstock.ended
    WHERE id >= %(first)s::uuid AND id < %(past)s::uuid AND state = 'succeeded' AND completed_at > %(succeeded_until)s
      AND NOT anchor
) AND NOT EXISTS (
    SELECT 1 FROM penstock.ended
    WHERE id >= %(first)s::uuid AND id < %(past)s::uuid AND state IN ('failed', 'cancelled', 'expired')
      AND completed_at > %(failed_until)s AND NOT anchor
) AND %(anchors_until)s >= coalesce((
    SELECT max(completed_at) FROM penstock.ended WHERE id >= %(first)s::uuid AND id < %(past)s::uuid AND anchor
), 0
) AND NOT EXISTS (
    SELECT 1 FROM penstock.ended
    WHERE id >= %(first)s::uuid AND id < %(past)s::uuid
    OFFSET %(most)s
)
