"""The jobs of the load. Each attempt writes to the ledger when it begins and when it ends."""

import asyncio
import os
import time
from pathlib import Path

from cluster.records import Entry, Mark, append
from penstock import Context, Penstock, Retry

LEDGER = "CLUSTER_LEDGER"
WORKER = "CLUSTER_WORKER"
OUTPUT = "fence.txt"
STUBBORN = Retry.fixed(delay=0.5, max_attempts=10)

app = Penstock()


class NotYet(Exception):
    """A first attempt that is meant to error."""


def note(ctx: Context, n: int, mark: Mark) -> None:
    entry = Entry(
        mark=mark,
        job=ctx.id,
        n=n,
        fence=ctx.fence,
        attempt=ctx.attempt,
        at=time.monotonic(),
        pid=os.getpid(),
        worker=os.environ[WORKER],
    )
    append(Path(os.environ[LEDGER]), entry)


async def run(ctx: Context, n: int, seconds: float) -> int:
    """The fence is the result, so that a result tells which attempt it belongs to."""
    note(ctx, n, Mark.START)
    await asyncio.sleep(seconds)
    note(ctx, n, Mark.END)
    return ctx.fence


@app.job(retry=STUBBORN)
async def quick(ctx: Context, n: int, text: str = "") -> int:
    """A few milliseconds; `text` may be too large for a row."""
    return await run(ctx, n, 0.005)


@app.job(retry=STUBBORN)
async def linger(ctx: Context, n: int) -> int:
    """Long enough to be running when something is killed."""
    return await run(ctx, n, 1.5)


@app.job(retry=STUBBORN)
async def flaky(ctx: Context, n: int) -> int:
    """Errors the first time."""
    if ctx.attempt == 1:
        note(ctx, n, Mark.START)
        note(ctx, n, Mark.ERROR)
        raise NotYet("the second attempt will do")
    return await run(ctx, n, 0.005)


@app.job(retry=STUBBORN)
async def write(ctx: Context, n: int) -> int:
    """Gives a file that holds its fence."""
    ctx.outputs.write(OUTPUT, str(ctx.fence))
    return await run(ctx, n, 0.005)
