"""A process with the app imported, from which workers and executors are forked instead of started anew.

owner ──asks──► template            imports the app once, runs nothing, answers with a process number
  └── worker ──asks──► template     the worker's own, forked with it: the same code, for its executors
        └── executor

Whoever asks becomes the parent of what was forked, so that a template's end harms nobody: the fork is made by a process
in between that ends at once, while the asker adopts what lies below it.
"""
