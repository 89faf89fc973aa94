"""The application that is measured: a job that does nothing but note when it started."""

from penstock import Penstock
from penstock.cli.bench.startlog import note_start

app = Penstock()


@app.job
async def noop(number: int, expected_at: float, pad: str = "") -> None:
    """Append one record to the start log."""
    note_start(expected_at)
