"""The policy on a virtual clock, against its rivals and one that knows the future, on made or real traces."""

from penstock.autoscaler.simulation.contest import Contest, Result, contest
from penstock.autoscaler.simulation.patterns import PATTERNS
from penstock.autoscaler.simulation.plot import svg
from penstock.autoscaler.simulation.trace import Trace, read_trace
from penstock.autoscaler.simulation.world import Machines

__all__ = ["PATTERNS", "Contest", "Machines", "Result", "Trace", "contest", "read_trace", "svg"]
