"""What sweeps the shards: dispatching, reaping and pruning, one set of loops for each shard; and ticking, once."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta

from penstock.engine import Engine
from penstock.model.ids import ShardId
from penstock.model.timing import seconds
from penstock.scheduler import Dispatcher, Pruner, Reaper, Ticker, run_service
from penstock.store import Shard

LOOK_EVERY = timedelta(seconds=1)
"""How soon a shard that was added gets its loops."""

Loop = Coroutine[None, None, None]


@asynccontextmanager
async def services(engine: Engine, *, ticker: bool) -> AsyncIterator[None]:
    """Sweep every shard while the body runs; with `ticker`, also turn the ticks of schedules into jobs."""
    sweeping = Sweeping(engine)
    loops = [run_service("shards", sweeping.step), *hearing(engine)]
    if ticker:
        slot = seconds(engine.settings.timing.slot_seconds)
        loops += ticking(Ticker(engine.ticks, slot, engine.clock))
    async with running(loops):
        try:
            yield
        finally:
            await sweeping.end()


class Sweeping:
    """One set of loops for each shard in use, so that a slow one delays nothing but its own jobs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._swept: dict[ShardId, tuple[Shard, list[asyncio.Task[None]]]] = {}

    async def step(self) -> timedelta:
        """Start what is missing and end what is not needed any more."""
        wanted = {shard.shard: shard for shard in self._engine.store.parts()}
        for number, (shard, _) in list(self._swept.items()):
            if wanted.get(number) is not shard:
                await self._end(number)
        for number, shard in wanted.items():
            if number not in self._swept:
                self._swept[number] = shard, [asyncio.ensure_future(loop) for loop in self._loops(shard)]
        return LOOK_EVERY

    def _loops(self, shard: Shard) -> list[Loop]:
        dispatcher = Dispatcher(self._engine, shard)
        return [
            self._dispatching(f"dispatcher {shard.shard}", dispatcher),
            run_service(f"reaper {shard.shard}", Reaper(self._engine, shard).step),
            run_service(f"pruner {shard.shard}", Pruner(self._engine, shard).step),
        ]

    async def _dispatching(self, name: str, dispatcher: Dispatcher) -> None:
        wake = self._engine.tickets.wake.event()
        try:
            await run_service(name, dispatcher.step, wake)
        finally:
            self._engine.tickets.wake.drop(wake)

    async def _end(self, number: ShardId) -> None:
        _, tasks = self._swept.pop(number)
        await _cancelled(tasks)

    async def end(self) -> None:
        for number in list(self._swept):
            await self._end(number)


@asynccontextmanager
async def running(loops: list[Loop]) -> AsyncIterator[None]:
    """Run the loops while the body runs."""
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        await _cancelled(tasks)


def ticking(ticker: Ticker) -> list[Loop]:
    """The two loops of a ticker: deciding, and hearing of changes."""
    return [run_service("ticker", ticker.step, ticker.wake), run_service("changes", ticker.hear)]


def hearing(engine: Engine) -> list[Loop]:
    """The loop that hears the bells of other processes, where there are any."""
    return [run_service("bells", engine.bells.listen)] if engine.shared else []


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
