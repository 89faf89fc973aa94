"""A process with the app imported, from which workers and executors are forked instead of started anew.

owner ──asks──► prefork             imports the app once, runs nothing, answers with a pid
  └── worker ──asks──► prefork      the worker's own, forked with it: the same code, for its executors
        └── executor

The asking process becomes the parent of the forked one, so that the end of a prefork process ends nothing else: an
intermediate process makes the fork and exits at once, and the asking process adopts the orphan.
"""
