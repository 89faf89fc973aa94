"""The handlers of a small shop: something quick, something slow, something that fails, and two schedules."""

import asyncio
import time
from datetime import timedelta

from penstock import Context, Fleet, Penstock, Retry

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
