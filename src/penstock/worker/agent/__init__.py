"""The worker's own process: it claims, renews and settles, and looks after the executors. No user code runs here."""

from penstock.worker.agent.agent import Agent

__all__ = ["Agent"]
