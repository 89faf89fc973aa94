"""What the tests of brokers share: tickets, bounded waits, and the fixture and hooks of a backend."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.broker.seam import Broker, SignalMessage
from penstock.model.ids import JobId, ShardId, new_job_id
from penstock.model.job import DEFAULT_PRIORITY, BacklogKey, Ticket
from penstock.model.workers import WorkRequest

ZERO = timedelta(0)
BRIEFLY = timedelta(milliseconds=20)
LONG = timedelta(seconds=60)
PROMPTLY = 30.0

RNG = random.Random(7)

Take = asyncio.Task[list[Ticket]]


def ticket(type_name: str = "mail", queue: str | None = None, priority: int = DEFAULT_PRIORITY) -> Ticket:
    """A ticket of a new job."""
    shard = ShardId(RNG.randrange(4))
    return Ticket(shard, new_job_id(1_800_000_000_000, shard, RNG), queue or type_name, type_name, priority)


def tickets(count: int, type_name: str = "mail") -> list[Ticket]:
    return [ticket(type_name) for _ in range(count)]


def wanting(*types: str, queues: Sequence[str] | None = None) -> WorkRequest:
    return WorkRequest(frozenset(types), None if queues is None else frozenset(queues))


def jobs(taken: Sequence[Ticket]) -> list[JobId]:
    return [one.job for one in taken]


async def promptly(take: Coroutine[Any, Any, list[Ticket]] | Take) -> list[Ticket]:
    """The result of a take that has no reason to wait."""
    async with asyncio.timeout(PROMPTLY):
        return await take


async def receive(listener: AsyncIterator[SignalMessage], count: int) -> list[SignalMessage]:
    """The next signals that a subscriber receives."""
    async with asyncio.timeout(PROMPTLY):
        return [await anext(listener) for _ in range(count)]


async def ends(listener: AsyncIterator[SignalMessage]) -> bool:
    """Whether a subscriber has ended."""
    async with asyncio.timeout(PROMPTLY):
        return await anext(listener, None) is None


def require(broker: Broker, capability: str) -> None:
    """Skip the test of a promise that the broker does not make."""
    if not getattr(broker.capabilities, capability):
        pytest.skip(f"this broker does not promise it: {capability} is false")


def same_tickets(broker: Broker, taken: Sequence[Ticket], sent: Sequence[Ticket]) -> bool:
    """Whether these tickets were taken, each once; in the order they were sent in if the broker keeps one."""
    if broker.capabilities.ordered:
        return list(taken) == list(sent)
    return sorted(jobs(taken)) == sorted(jobs(sent))


async def take_all(broker: Broker, wanted: WorkRequest, count: int) -> list[Ticket]:
    """As many tickets as there must be, however many calls they take."""
    taken: list[Ticket] = []
    while len(taken) < count:
        taken += await promptly(broker.take(wanted, count - len(taken), LONG))
    return taken


async def expect_depths(broker: Broker, expected: dict[BacklogKey, int]) -> None:
    """Fail unless these are the depths; where they are estimates, unless they become these in time."""
    async with asyncio.timeout(PROMPTLY):
        while (found := _held(await broker.depths())) != expected and not broker.capabilities.exact_depths:
            pass
    assert found == expected


def _held(depths: dict[BacklogKey, int]) -> dict[BacklogKey, int]:
    return {key: depth for key, depth in depths.items() if depth}


class BrokerStage(ABC):
    """The fixture and the hooks that the test of a backend provides."""

    @pytest.fixture
    @abstractmethod
    def broker(self) -> Any:
        """An empty broker, closed afterwards."""

    @abstractmethod
    async def lose(self, broker: Any) -> None:
        """Hook: make the broker forget all tickets, as when it is killed or flushed."""

    async def redeliver(self, broker: Any) -> None:
        """Hook, if it `redelivers`: let the time pass after which taken tickets that were not discarded come again."""
        raise NotImplementedError

    async def settle_down(self, broker: Any) -> None:
        """Hook: return once all takes that were started wait in the broker. Here: after a few turns of the loop."""
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 - a turn, not a wait

    async def start_take(self, broker: Broker, wanted: WorkRequest, limit: int = 10) -> Take:
        """A take that waits."""
        take = asyncio.ensure_future(broker.take(wanted, limit, LONG))
        await self.settle_down(broker)
        return take

    async def subscribe(self, broker: Any, *signals: str) -> AsyncIterator[SignalMessage]:
        """Hook: a subscriber to what is sent from now on that has received nothing yet."""
        listener: AsyncIterator[SignalMessage] = broker.listen(signals)
        return listener
