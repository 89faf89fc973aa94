"""When a schedule ticks. Pure: from an intention and an instant to the instants that follow."""
