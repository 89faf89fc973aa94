"""To be described: bench."""
