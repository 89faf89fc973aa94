"""The jobs of the load on AWS: two types, each with its own queue and workers. Attempts write to the ledger."""

from cluster.jobs import OUTPUT, STUBBORN, NotYet, note, run
from cluster.records import Mark
from penstock import Context, Penstock

app = Penstock()


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
