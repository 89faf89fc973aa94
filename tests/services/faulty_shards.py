"""SQLite shards that fail on demand, and orchestrators over them on a simulated clock."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, cast

from penstock.model.clock import to_millis
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId, ShardId, new_job_id
from penstock.model.job import Job, NewJob
from penstock.model.shards import ShardMember, shard_map
from penstock.model.submission import Inserted
from penstock.orchestrator import ShardedStore
from penstock.store.seam import Shard
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import SimulatedClock

PATIENCE = 60.0
TICKET = timedelta(seconds=30)
LEASE = timedelta(seconds=15)
TURNS = 20
"""Turns of the event loop within which a runnable task reaches its next wait."""


class Behaviour(StrEnum):
    WELL = "well"
    RAISES = "raises"
    HANGS = "hangs"
    REFUSES = "refuses"


class ThreadCalls:
    """Counts the calls that threads carry out now, over all shards of a test."""

    def __init__(self) -> None:
        self._calls = 0
        self._changed = asyncio.Event()

    def __enter__(self) -> None:
        self._calls += 1

    def __exit__(self, *_: object) -> None:
        self._calls -= 1
        self._changed.set()

    async def rest(self) -> None:
        """Return once tasks that could go on have done so, and no thread is at work for them."""
        turns = 0
        while turns < TURNS:
            await asyncio.sleep(0)
            turns = turns + 1 if not self._calls else 0
            while self._calls:
                self._changed.clear()
                await self._changed.wait()


class FaultyShard:
    """A SQLite shard that answers, raises or hangs as `behaviour` says; `asked` lists its calls except probes."""

    def __init__(self, inside: SqliteStore, work: "ThreadCalls") -> None:
        self.behaviour = Behaviour.WELL
        self.asked: list[str] = []
        self.inside = inside
        self._work = work

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inside, name)
        return self._wrap(name, value) if asyncio.iscoroutinefunction(value) else value

    def _wrap(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(*args: Any, **more: Any) -> Any:
            if name != "probe":
                self.asked.append(name)
            if self.behaviour is Behaviour.RAISES:
                raise StoreUnavailable("out of order")
            if self.behaviour is Behaviour.REFUSES:
                raise StoreUnavailable("connection refused", sent=False)
            if self.behaviour is Behaviour.HANGS:
                await asyncio.Event().wait()
            with self._work:
                return await method(*args, **more)

        return asked

    async def close(self) -> None:
        """Stay open: other orchestrators may use it too."""


class FaultyShards:
    """Shards in files, under the URLs `shard 0`, `shard 1`, …, and orchestrators over them."""

    def __init__(self, folder: Path) -> None:
        self.clock = SimulatedClock()
        self.shards: dict[str, FaultyShard] = {}
        self.closed: set[str] = set()
        self.opens: Counter[str] = Counter()
        self.work = ThreadCalls()
        self._folder = folder
        self._rng = random.Random(3)
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def orchestrator(self, numbers: Iterable[int] = range(3), **more: Any) -> ShardedStore:
        members = [ShardMember(ShardId(number), f"shard {number}") for number in numbers]
        store = await ShardedStore.open(shard_map(members), self.open_shard, self.clock, random.Random(5), **more)
        self._opened.push_async_callback(store.close)
        return store

    async def open_shard(self, number: ShardId, url: str) -> Shard:
        """As the runtime does; refused for URLs in `closed`."""
        self.opens[url] += 1
        if url in self.closed:
            raise StoreUnavailable(f"connection refused at {url}")
        if url not in self.shards:
            with self.work:
                inside = await SqliteStore.open(self._folder / f"{url}.db", shard=number, clock=self.clock)
            self._opened.push_async_callback(inside.close)
            self.shards[url] = FaultyShard(inside, self.work)
        return cast(Shard, self.shards[url])

    def shard(self, number: int) -> FaultyShard:
        return self.shards[f"shard {number}"]

    async def until(self, true: Callable[[], bool]) -> None:
        """Let time pass, second by second, until it is so."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                self.clock.advance(timedelta(seconds=1.3))
                await self.work.rest()

    async def falls(self, store: ShardedStore, number: int, behaviour: Behaviour = Behaviour.RAISES) -> None:
        """Make a shard fail, and return once the orchestrator has noticed."""
        self.shard(number).behaviour = behaviour
        await self.until(lambda: ShardId(number) in store.unavailable())

    async def heals(self, store: ShardedStore, number: int) -> None:
        self.shard(number).behaviour = Behaviour.WELL
        await self.until(lambda: ShardId(number) not in store.unavailable())

    def new(self, at: int, key: str | None = None) -> NewJob:
        return NewJob(id=self.new_id(at), type="mail", queue="mail", key=key)

    def new_id(self, at: int) -> JobId:
        return new_job_id(to_millis(self.clock.now()), ShardId(at), self._rng)

    async def submit(self, store: ShardedStore, at: int) -> Job:
        (made,) = await store.submit([self.new(at)], TICKET)
        assert isinstance(made, Inserted)
        return made.job


def key_at(store: ShardedStore, number: int) -> str:
    """A key that lives on this shard."""
    return next(key for key in map(str, range(9999)) if store.shard_for(key) == number)


async def wait_for_repairs(store: ShardedStore) -> None:
    """Return once the shards have been sent the notices they are known to lack now."""
    await store.notices()
    if telling := list(store.directory._repairs.values()):  # noqa: SLF001 - they go on behind every caller's back
        await asyncio.wait(telling)
