-- ticketed
UPDATE jobs INDEXED BY ticketed SET ticket_until = ticket_until + :step WHERE state = 'queued' AND ticket_until IS NOT NULL
