UPDATE workers SET seen_at = seen_at + :step
