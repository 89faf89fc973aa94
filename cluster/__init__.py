"""A whole Penstock on one machine, with real processes: loaded, hurt part by part, and judged from outside.

`python -m cluster` (or `make cluster`) runs it. Nothing in here is shipped.
"""
