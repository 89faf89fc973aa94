"""The application that is measured: jobs that do nothing but note when they started."""

from penstock import Penstock
from penstock.lab.bench.startlog import note_start

app = Penstock()


@app.job
async def noop(number: int, expected_at: float, pad: str = "") -> None:
    """Append one record to the start log."""
    note_start(expected_at)


@app.job
async def probe(expected_at: float) -> None:
    """The same in a queue of its own, to see how it fares beside the other."""
    note_start(expected_at)
