"""Runs jobs: an agent process that claims, renews and settles, and executor processes that run user code.

agent ──frames──► executor      one socketpair each; a page of shared memory tells which jobs have started
  │                  handlers: on the event loop, in threads; one job only when isolated or a suspect
  ├──► programs      job types that are commands, each in a process group of its own
  └──► WorkerApi     the engine, directly or over HTTP

Agents and executors are started anew, or forked from a process that has the app imported: `penstock.worker.prefork`.
"""
