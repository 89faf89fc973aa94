"""The application that Penstock runs in the bench, written as a user would write it."""

from peers.job import mark
from penstock import Penstock

app = Penstock()


@app.job()
async def noop(i: int, t: float, user: str, pad: str) -> None:
    mark(i, t)
