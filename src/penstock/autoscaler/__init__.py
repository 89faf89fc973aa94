"""The autoscaler: how many workers a fleet should have (`policy`), the `loop` that sees to it, and its `simulation`."""

from penstock.autoscaler.memory import Memory
from penstock.autoscaler.policy import decide

__all__ = ["Memory", "decide"]
