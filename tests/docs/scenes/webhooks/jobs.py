"""What the guide to webhooks takes for granted."""

from penstock import Penstock

app = Penstock()


@app.job
async def report(rows: int = 100) -> str:
    return f"{rows} rows"
