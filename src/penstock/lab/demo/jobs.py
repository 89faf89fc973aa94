"""The job types of the demo, written as in any application."""

import asyncio

from penstock import Context, Fleet, Penstock, Retry

app = Penstock()

POSTER = """\
+----------------------------------+
|  {text:^30}  |
+----------------------------------+
"""


@app.job
async def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


@app.job
async def square(number: int) -> int:
    """Hardly anything: there are thousands of these."""
    return number * number


@app.job(retry=Retry.fixed(delay=0.3, max_attempts=5, jitter=False))
async def flaky(context: Context, *, good_from: int) -> str:
    """Err in the first attempts."""
    if context.attempt < good_from:
        raise ConnectionError(f"the supplier's server hung up (attempt {context.attempt})")
    return f"worked at attempt {context.attempt}"


@app.job(timeout=0.8, retry=Retry.none())
async def stuck() -> None:
    """Never come to an end."""
    await asyncio.sleep(3600)  # noqa: TID251 - handlers wait as their authors like


@app.job(retry=Retry.none(), fleet=Fleet(max=6, target_wait="1s", capacity=8, in_after="1s"))
async def nap(seconds: float) -> None:
    """Wait for something far away, in a fleet of its own: up to six workers, and none when there is nothing to do."""
    await asyncio.sleep(seconds)  # noqa: TID251 - handlers wait as their authors like


@app.job(retry=Retry.none())
async def crunch(context: Context, *, seconds: float) -> str:
    """Take a while, and tell how far it is."""
    steps = max(1, round(seconds * 10))
    for step in range(steps):
        context.progress(step / steps, f"part {step} of {steps}")
        await asyncio.sleep(seconds / steps)  # noqa: TID251 - handlers wait as their authors like
    return f"{steps} parts"


@app.job
def poster(context: Context, text: str) -> int:
    """Write a file."""
    content = POSTER.format(text=text)
    context.outputs.write("poster.txt", content, "text/plain")
    return len(content)
