"""Where the guide to schedules declares its own."""

from penstock import Penstock

app = Penstock()


@app.job
async def fetch(url: str) -> str:
    return url
