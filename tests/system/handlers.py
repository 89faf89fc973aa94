"""Handlers for tests with real processes. They write what they do to a ledger outside the system."""

import asyncio
import ctypes
import json
import os
import signal
import time
from pathlib import Path

from penstock import Context, Penstock, Retry
from tests.watch import until_there

app = Penstock()

FOLDER = Path(os.environ.get("HANDLERS_FOLDER", "."))
ONCE = Retry.none()


def note(ctx: Context, what: str) -> None:
    """One line, in one write, so that processes do not mix."""
    line = json.dumps({"job": ctx.id, "fence": ctx.fence, "attempt": ctx.attempt, "pid": os.getpid(), "what": what})
    ledger = os.open(FOLDER / "ledger.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line.encode() + b"\n")
    os.close(ledger)


@app.job
async def mark(n: int) -> int:
    """Almost nothing."""
    return n


@app.job(retry=ONCE)
def parent(n: int) -> int:
    """Have another job do it."""
    return mark.submit(n).wait(timeout=60).result


@app.job(retry=ONCE)
def hold(ctx: Context) -> int:
    """Give an output, then wait until the file `go` is there."""
    note(ctx, "start")
    ctx.outputs.write("fence.txt", str(ctx.fence))
    while not (FOLDER / "go").exists():
        time.sleep(0.02)
    note(ctx, "end")
    return ctx.fence


@app.job(retry=ONCE)
async def doze(ctx: Context, *, seconds: float) -> None:
    """Wait a little."""
    note(ctx, "start")
    await asyncio.sleep(seconds)


@app.job(retry=ONCE)
async def segfault() -> None:
    """Read address zero."""
    ctypes.string_at(0)


@app.job(retry=ONCE)
async def leave() -> None:
    """End the process without a word."""
    os._exit(7)


@app.job(retry=ONCE)
def eat() -> int:
    """Take memory until someone stops it."""
    taken = []
    while True:
        taken.append(bytearray(16 * 1024 * 1024))
        time.sleep(0.005)


@app.job(retry=ONCE, timeout=2)
async def block() -> None:
    """Block the event loop for ever."""
    while True:
        time.sleep(60)  # noqa: ASYNC251 - its whole purpose


@app.job(retry=ONCE)
async def stubborn(ctx: Context) -> None:
    """Run on, whoever asks it to stop."""
    note(ctx, "start")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


@app.job(retry=Retry.fixed(delay=0.1, max_attempts=9))
async def deadly(ctx: Context) -> None:
    """Kill every process it is run in."""
    note(ctx, "start")
    os._exit(9)


@app.job(retry=ONCE)
async def neighbour(ctx: Context) -> str:
    """Share an executor until the file `go` is there."""
    note(ctx, "start")
    await until_there(FOLDER / "go")
    return "unhurt"


@app.job(retry=ONCE)
async def fell(ctx: Context) -> None:
    """Kill the whole worker it is run in."""
    note(ctx, "start")
    os.kill(os.getppid(), signal.SIGKILL)
    await asyncio.sleep(60)
