"""`penstock demo`: the story of a few jobs, told by a real server and two real workers."""
