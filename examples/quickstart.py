"""One job type of each sort. Start it with `penstock up examples.quickstart:app`, then from another terminal:

penstock jobs submit add a=1 b=2 --wait
penstock schedules
python -m examples.quickstart
"""

import asyncio
import os
import time
from datetime import timedelta

from penstock import Context, Penstock, Retry

app = Penstock()


@app.job
async def add(a: int, b: int = 0) -> int:
    """The smallest job there is."""
    return a + b


@app.job(timeout=60)
async def thumbnail(ctx: Context, url: str, width: int = 256) -> str:
    """Tell how far it is while it works."""
    for percent in range(0, 100, 10):
        ctx.progress(percent / 100, f"resizing to {width} px")
        await asyncio.sleep(0.1)
    return f"{url.rpartition('/')[2]}@{width}"


@app.job(retry=Retry.fixed(delay=0.2, max_attempts=3))
async def flaky(ctx: Context) -> str:
    """Fail twice, then succeed."""
    if ctx.attempt < 3:
        raise ConnectionError(f"attempt {ctx.attempt} found nobody at home")
    return f"succeeded in attempt {ctx.attempt}"


@app.job(timeout=timedelta(hours=1))
def slow(ctx: Context, seconds: float = 30.0) -> str:
    """Take its time in a thread, and stop when it is asked to."""
    steps = max(1, round(seconds * 10))
    for step in range(steps):
        ctx.check()
        ctx.progress(step / steps)
        time.sleep(0.1)
    return f"slept {seconds:g} s"


@app.job
def report(ctx: Context, rows: int = 3) -> int:
    """Give a file."""
    lines = ["number,square", *(f"{number},{number * number}" for number in range(rows))]
    ctx.outputs.write("report.csv", "\n".join(lines) + "\n", "text/csv")
    return rows


@app.job
def word_count(ctx: Context) -> dict[str, int]:
    """Count the words of every input file."""
    return {name: len(path.read_text().split()) for name, path in ctx.inputs.items()}


@app.job
async def tick_tock(word: str = "tick") -> str:
    """Come again and again; see `penstock schedules`."""
    return word


app.schedule("every-minute", tick_tock, interval=timedelta(minutes=1), params={"word": "tock"}, overlap="skip")
app.schedule("nightly", report, cron="0 2 * * *", timezone="Europe/Berlin", params={"rows": 100})


@app.job(isolated=True, retry=Retry.none())
def crash() -> None:
    """Take its whole process down; nobody else notices."""
    os._exit(1)


shout = app.command("shout", ["sh", "-c", 'tr a-z A-Z > "$PENSTOCK_RESULT"'])
"""A program in any language: params come as JSON on its standard input, the result goes as JSON into a file."""


if __name__ == "__main__":
    print("add:       ", add.submit(1, 2).wait().result)
    print("thumbnail: ", thumbnail.using(priority=9).submit("https://example.com/cat.png", width=64).wait().result)
    print("flaky:     ", flaky.submit().wait().result)
    print("report:    ", report.submit(rows=5).wait().output("report.csv").decode().split())
    print("word_count:", word_count.using(inputs={"poem": b"so much depends upon"}).submit().wait().result)
    print("shout:     ", shout.submit(text="hello").wait().result)
    print("bulk:      ", sum(job.wait().result for job in add.submit_many((n, n) for n in range(10))))
