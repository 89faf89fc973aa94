"""The parts of the bench, in the order they run. Each starts from an empty system and gives the figures it found."""

from collections.abc import Callable

from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.parts.bulk import bulk
from penstock.cli.bench.parts.drain import drain
from penstock.cli.bench.parts.due import due
from penstock.cli.bench.parts.growth import growth
from penstock.cli.bench.parts.idle import idle
from penstock.cli.bench.parts.latency import latency
from penstock.cli.bench.parts.memory import memory
from penstock.cli.bench.parts.startup import startup
from penstock.cli.bench.parts.submit import submit
from penstock.cli.bench.parts.zero import zero
from penstock.cli.bench.rig import Workshop

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
