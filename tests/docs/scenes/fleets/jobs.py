"""What the guide to fleets takes for granted: a job type with a fleet of its own."""

from penstock import Fleet, Penstock

app = Penstock()


@app.job(fleet=Fleet(max=20, target_wait="5s"))
async def thumbnail(url: str) -> str:
    return url
