"""The jobs of the load on AWS: two types, each with its own queue and workers. Attempts write to the ledger."""

import asyncio
import os
import time
from pathlib import Path

from cluster.jobs import LEDGER, OUTPUT, STUBBORN, NotYet
from cluster.records import Entry, Mark, append
from penstock import Context, Penstock
from penstock.model.names import MEMBER

app = Penstock()


def note(ctx: Context, n: int, mark: Mark) -> None:
    entry = Entry(
        mark=mark,
        job=ctx.id,
        n=n,
        fence=ctx.fence,
        attempt=ctx.attempt,
        at=time.monotonic(),
        pid=os.getpid(),
        worker=os.environ.get(MEMBER, "unnamed"),
    )
    append(Path(os.environ[LEDGER]), entry)


async def run(ctx: Context, n: int, seconds: float) -> int:
    """The fence is the result, so that a result tells which attempt it belongs to."""
    note(ctx, n, Mark.START)
    await asyncio.sleep(seconds)
    note(ctx, n, Mark.END)
    return ctx.fence


@app.job(retry=STUBBORN)
async def thumbnail(ctx: Context, n: int, text: str = "", file: bool = False) -> int:
    """A few milliseconds. `text` may be too large for an item; with `file` it gives one that holds its fence."""
    if file:
        ctx.outputs.write(OUTPUT, str(ctx.fence))
    return await run(ctx, n, 0.02)


@app.job(retry=STUBBORN)
async def report(ctx: Context, n: int, flaky: bool = False) -> int:
    """Long enough to be running when something is killed; a flaky one errors the first time."""
    if flaky and ctx.attempt == 1:
        note(ctx, n, Mark.START)
        note(ctx, n, Mark.ERROR)
        raise NotYet("the second attempt will do")
    return await run(ctx, n, 1.5)
