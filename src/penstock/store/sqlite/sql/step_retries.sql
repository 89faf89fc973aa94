-- due. Only what waits for another attempt: any other due time is one that a user has chosen.
UPDATE jobs INDEXED BY due SET due_at = due_at + :step WHERE state = 'scheduled' AND attempt > 0
