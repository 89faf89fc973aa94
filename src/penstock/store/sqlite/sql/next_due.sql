-- due
SELECT min(due_at) FROM jobs INDEXED BY due WHERE state = 'scheduled'
