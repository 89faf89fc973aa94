"""What the guide to jobs inside a transaction takes for granted: a handler."""

from penstock import Penstock

app = Penstock()


@app.job
async def confirm(order: int) -> None:
    """Send the mail."""
