"""The commands that every adapter understands, run as `python -m peers NAME COMMAND`:

reset                  empty the store and create what the system needs
enqueue N              N single calls, one after the other  -> {"n", "seconds"}
bulk N                 N jobs by the bulk call, 1000 each   -> {"n", "seconds"} or {"unsupported"}
later N                N jobs due in an hour                -> {"n", "seconds"} or {"unsupported"}
callers N SECONDS      single calls by N callers at once    -> {"n", "seconds"} or {"unsupported"}
latency SECONDS STEP   one job each STEP seconds            -> {"n", "seconds"}
worker                 the best fair setting for two cores, in the foreground
server                 the system's own server, in the foreground (only where it has one)
"""

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from peers.adapter import Adapter, Unsupported
from peers.job import Payload, payload

CHUNK = 1000
LATER = timedelta(hours=1)


def main(name: str, command: str, *numbers: str) -> None:
    adapter: Adapter = importlib.import_module(f"peers.{name}").ADAPTER
    match command:
        case "worker":
            adapter.worker()
        case "server":
            adapter.server()
        case _:
            print(json.dumps(_run(_answer(adapter, command, numbers))))


async def _answer(adapter: Adapter, command: str, numbers: tuple[str, ...]) -> dict[str, object]:
    if command == "reset":
        await adapter.reset()
        return {"reset": True}
    await adapter.open()
    try:
        began = time.perf_counter()
        jobs = await _produce(adapter, command, numbers)
        return {"n": jobs, "seconds": time.perf_counter() - began}
    except Unsupported as missing:
        return {"unsupported": str(missing)}
    finally:
        await adapter.close()


async def _produce(adapter: Adapter, command: str, numbers: tuple[str, ...]) -> int:
    match command, numbers:
        case "enqueue", (jobs,):
            for index in range(int(jobs)):
                await adapter.put(payload(index))
        case "bulk", (jobs,):
            for start in range(0, int(jobs), CHUNK):
                await adapter.put_many(_chunk(start, int(jobs)))
        case "later", (jobs,):
            for start in range(0, int(jobs), CHUNK):
                await adapter.put_later(_chunk(start, int(jobs)), LATER)
        case "callers", (callers, seconds):
            return await adapter.put_from(int(callers), float(seconds))
        case "latency", (seconds, step):
            return await _paced(adapter, round(float(seconds) / float(step)), float(step))
        case _:
            raise SystemExit(__doc__)
    return int(jobs)


async def _paced(adapter: Adapter, jobs: int, step: float) -> int:
    """Each job has its own time; a slow call delays the next one but does not move the rest."""
    began = time.perf_counter()
    for index in range(jobs):
        await asyncio.sleep(max(0.0, began + index * step - time.perf_counter()))
        await adapter.put(payload(index))
    return jobs


def _chunk(start: int, end: int) -> list[Payload]:
    return [payload(index) for index in range(start, min(end, start + CHUNK))]


def _run(work: Coroutine[Any, Any, dict[str, object]]) -> dict[str, object]:
    """On uvloop where the peer's environment has it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
