-- Workers are read by when they were last seen, and forgotten by that.
CREATE INDEX workers_by_age ON workers (seen_at);
