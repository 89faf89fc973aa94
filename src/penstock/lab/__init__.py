"""`penstock bench`: what this machine reaches on the embedded default, through the real path: HTTP, disk, processes."""
