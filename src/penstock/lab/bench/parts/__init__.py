"""The parts of the bench, in the order they run. Each starts from an empty system and gives the figures it found."""

from collections.abc import Callable

from penstock.lab.bench.figure import Amounts, Figure
from penstock.lab.bench.parts.due import due
from penstock.lab.bench.parts.footprint import idle, memory, startup, zero
from penstock.lab.bench.parts.latency import latency
from penstock.lab.bench.parts.throughput import bulk, drain, growth, submit
from penstock.lab.bench.rig import Workshop

Part = Callable[[Workshop, Amounts], list[Figure]]

PARTS: dict[str, Part] = {
    "startup": startup,
    "drain": drain,
    "submit": submit,
    "bulk": bulk,
    "latency": latency,
    "due": due,
    "growth": growth,
    "zero": zero,
    "memory": memory,
    "idle": idle,
}
