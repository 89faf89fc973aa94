UPDATE roles SET held_until = held_until + :step
