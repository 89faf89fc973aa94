"""The autoscaler: `policy` decides how many workers a fleet should have, `loop` starts and stops them."""

from penstock.autoscaler.memory import Memory
from penstock.autoscaler.policy import decide

__all__ = ["Memory", "decide"]
