"""The policy on a virtual clock, against its rivals and one that knows the future, on made or real traces."""

from penstock.lab.simulation.contest import PATTERNS, Contest, Result, contest
from penstock.lab.simulation.plot import svg
from penstock.lab.simulation.world import Machines, Trace, read_trace

__all__ = ["PATTERNS", "Contest", "Machines", "Result", "Trace", "contest", "read_trace", "svg"]
