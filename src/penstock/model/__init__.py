"""Values and rules: what a job is and how it may move. Pure: no clock, no chance, no input or output of its own."""
