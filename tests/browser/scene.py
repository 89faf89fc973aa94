"""A small shop with something to see on every page: its handlers, and jobs in every state."""

import asyncio
import time
from datetime import timedelta

from penstock import Context, Fleet, Penstock, Retry
from penstock.client import Client
from penstock.model.lifecycle import State

SCENE = "tests.browser.scene:app"

app = Penstock()


@app.job(retry=Retry.fixed(delay=0.1, max_attempts=3), timeout=60)
async def thumbnail(ctx: Context, url: str, width: int = 256, seconds: float = 0.05) -> str:
    """Resize a picture.

    Pictures that are not there cannot be resized, however often it is tried.
    """
    ctx.log.info("fetch %s", url)
    if "missing" in url:
        raise FileNotFoundError(f"404: {url}")
    for step in range(10):
        ctx.progress(step / 10, f"resizing to {width} px")
        await asyncio.sleep(seconds / 10)
    return f"{url.rpartition('/')[2]}@{width}"


@app.job
def report(ctx: Context, month: str, rows: int = 3) -> dict[str, int]:
    """Count what was sold in a month, and write it down."""
    ctx.outputs.write("report.csv", "\n".join(f"{row},{row * row}" for row in range(rows)), "text/csv")
    return {"rows": rows, "exact": 9007199254740993}


@app.job
async def mail(to: str, subject: str = "Hello") -> None:
    """Send a letter."""


@app.job(fleet=Fleet(max=3, target_wait="2s"))
def encode(ctx: Context, film: str, seconds: float = 600.0) -> str:
    """Encode a film; it takes its time."""
    for step in range(round(seconds * 10)):
        ctx.check()
        ctx.progress(min(1.0, 0.4 + step / (seconds * 10)), "second pass")
        time.sleep(0.1)
    return film


app.schedule("every-minute", mail, interval=timedelta(minutes=1), params={"to": "ops@example.com"})
app.schedule("nightly-report", report, cron="30 2 * * *", timezone="Europe/Berlin", params={"month": "2026-11"})


class Seeded:
    """Jobs to look at, by what became of them."""

    def __init__(self, client: Client) -> None:
        pictures = [
            client.submit("thumbnail", {"url": f"https://example.com/cat-{number}.png", "width": 64 * (number % 4 + 1)})
            for number in range(30)
        ]
        self.failed = client.submit("thumbnail", {"url": "https://example.com/missing.png"}, tags=("customer-42",)).id
        self.report = client.submit("report", {"month": "2026-10", "rows": 12}, tags=("monthly",)).id
        client.pause("mail")
        self.paused = client.submit("mail", {"to": "someone@example.com"}).id
        self.later = client.submit("mail", {"to": "later@example.com"}, delay=timedelta(hours=2)).id
        self.cancelled = client.submit("mail", {"to": "nobody@example.com"}).id
        client.cancel(self.cancelled)
        self.running = client.submit("encode", {"film": "the-third-man.mkv"}).id
        self.succeeded = pictures[0].id
        for job in (*pictures, self.failed, self.report):
            client.wait(job if isinstance(job, str) else job.id)
        assert client.get(self.failed).state is State.FAILED
