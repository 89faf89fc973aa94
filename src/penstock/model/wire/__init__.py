"""To be described: wire."""
