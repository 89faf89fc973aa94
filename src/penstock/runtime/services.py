"""The loops of a scheduler: dispatcher, reaper, pruner and journal of each shard, the relays, and one ticker."""

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta

from penstock.engine import Engine
from penstock.loop import OnStep, Step
from penstock.model.clock import seconds
from penstock.model.ids import ShardId
from penstock.runtime.relays import RelayServices
from penstock.scheduler import Dispatcher, JournalService, Pruner, Reaper, Ticker, run_service
from penstock.scheduler.cloudwatch import QueueMetrics
from penstock.store import Shard

CHECK_INTERVAL = timedelta(seconds=1)
"""How soon a new shard gets its loops."""

Loop = Coroutine[None, None, None]


@asynccontextmanager
async def services(engine: Engine, *, ticker: bool) -> AsyncIterator[None]:
    """Sweep every shard and deliver events while the body runs; with `ticker`, also turn ticks into jobs."""
    sweeping = ShardServices(engine)
    relaying = RelayServices(engine, f"{process_name()}-{secrets.token_hex(4)}")
    loops = [
        run_service("shards", sweeping.step),
        run_service("relays", relaying.step, relaying.wake, step_recorder(engine, "relays")),
        *signal_loops(engine),
        *metrics_loops(engine),
    ]
    if ticker:
        slot = seconds(engine.settings.timing.slot_seconds)
        loops += ticker_loops(Ticker(engine.ticks, slot, engine.clock), step_recorder(engine, "ticker"))
    async with run_loops(loops):
        try:
            yield
        finally:
            await relaying.end()
            await sweeping.end()


def process_name() -> str:
    """A name for this process, as a worker has one."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname()).strip("-") or "host"
    return f"{host[:64]}-{os.getpid()}"


class ShardServices:
    """One set of loops for each shard, so that a slow shard delays only its own jobs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._swept: dict[ShardId, tuple[Shard, list[asyncio.Task[None]]]] = {}

    async def step(self) -> timedelta:
        """Start the loops of new shards and end those of removed ones."""
        wanted = {shard.shard: shard for shard in self._engine.store.shards()}
        for number, (shard, _) in list(self._swept.items()):
            if wanted.get(number) is not shard:
                await self._end(number)
        for number, shard in wanted.items():
            if number not in self._swept:
                self._swept[number] = shard, [asyncio.ensure_future(loop) for loop in self._loops(shard)]
        return CHECK_INTERVAL

    def _loops(self, shard: Shard) -> list[Loop]:
        dispatching, reaping, pruning, numbering = _names(shard.shard)
        return [
            self._run_dispatcher(dispatching, Dispatcher(self._engine, shard)),
            self._service(reaping, Reaper(self._engine, shard).step),
            self._service(pruning, Pruner(self._engine, shard).step),
            self._service(numbering, JournalService(shard).step),
        ]

    def _service(self, name: str, step: Step, wake: asyncio.Event | None = None) -> Loop:
        return run_service(name, step, wake, step_recorder(self._engine, name))

    async def _run_dispatcher(self, name: str, dispatcher: Dispatcher) -> None:
        wake = self._engine.tickets.wake.event()
        try:
            await self._service(name, dispatcher.step, wake)
        finally:
            self._engine.tickets.wake.drop(wake)

    async def _end(self, number: ShardId) -> None:
        _, tasks = self._swept.pop(number)
        await _cancel(tasks)
        for name in _names(number):
            self._engine.meters.services.pop(name, None)

    async def end(self) -> None:
        for number in list(self._swept):
            await self._end(number)


def _names(shard: ShardId) -> tuple[str, str, str, str]:
    return f"dispatcher {shard}", f"reaper {shard}", f"pruner {shard}", f"journal {shard}"


def step_recorder(engine: Engine, service: str) -> OnStep:
    """A callback that records the time and result of each step of a service in the metrics."""

    def note(*, ok: bool) -> None:
        engine.meters.note_step(service, engine.clock.now().timestamp(), failed=not ok)

    return note


@asynccontextmanager
async def run_loops(loops: list[Loop]) -> AsyncIterator[None]:
    """Run the loops while the body runs."""
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        await _cancel(tasks)


def ticker_loops(ticker: Ticker, on_step: OnStep | None = None) -> list[Loop]:
    """The two loops of a ticker: its steps, and following changes of schedules."""
    return [run_service("ticker", ticker.step, ticker.wake, on_step), run_service("changes", ticker.follow_changes)]


def metrics_loops(engine: Engine) -> list[Loop]:
    """The loop that prints metrics for CloudWatch, where the settings ask for it."""
    return [run_service("cloudwatch", QueueMetrics(engine).step)] if engine.settings.metrics.cloudwatch else []


def signal_loops(engine: Engine) -> list[Loop]:
    """The loop that receives the signals of other processes, where there are any."""
    return [run_service("signals", engine.signals.listen)] if engine.shared else []


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Stopping:
    """Whether this process was asked to stop, and how urgently."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urgent = asyncio.Event()

    def listen(self) -> None:
        """Take over SIGINT and SIGTERM for the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.ask)

    def ask(self) -> None:
        if self.asked.is_set():
            self.urgent.set()
        self.asked.set()
