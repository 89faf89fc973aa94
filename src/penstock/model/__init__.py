"""Values and rules: what a job is and how it may move. Pure: clock and random source are passed in, no I/O."""
