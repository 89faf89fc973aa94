"""The application that Penstock runs in the bench, written as a user would write it."""

from penstock import Penstock

from peers.job import mark

app = Penstock()


@app.job()
async def noop(i: int, t: float, user: str, pad: str) -> None:
    mark(i, t)
