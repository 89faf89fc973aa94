"""Relays over real shards, a real sink on loopback and a simulated clock, for tests of services."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.engine import Engine
from penstock.events import AddressRules, WebhookNotifier
from penstock.events.relay import Relay, RelayContext
from penstock.events.sinks import NotifierSinks
from penstock.events.webhook import DeliveryDeadlines
from penstock.model.ids import JobId
from penstock.model.journal import Parked, ParkedState
from penstock.model.subscriptions import Subscription, WebhookSink
from penstock.model.wire.subscriptions import SubscriptionRequest
from penstock.store import Shard
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import claim, success
from tests.webhook_sink import Answer, LocalSink, SinkRequest, reply

NAME = "orders"
SHORT = DeliveryDeadlines(answer=timedelta(seconds=0.3))


class RelayStage:
    """One engine, one subscription, and as many relays for it as a test wants."""

    def __init__(self, engine: Engine, clock: SimulatedClock, sink: LocalSink) -> None:
        self.engine = engine
        self.clock = clock
        self.sink = sink
        self.taken: list[str] = []
        self.refuses: Callable[[str], bool] = lambda _: False
        self.failing: Answer = reply(500, b"no")
        sink.usual = self._answer
        self.notifier = WebhookNotifier(AddressRules(loopback=True), "penstock", clock)
        self.impatient = WebhookNotifier(AddressRules(loopback=True), "penstock", clock, deadlines=SHORT)
        engine.subscriptions.sinks = NotifierSinks(engine.settings, clock, random.Random(3))

    @property
    def shard(self) -> Shard:
        (shard,) = self.engine.store.shards()
        return shard

    async def subscribe(self, **terms: Any) -> Subscription:
        request = SubscriptionRequest(name=NAME, sink=WebhookSink(self.sink.url), **terms)
        await self.engine.subscriptions.create(request)
        # Entries and subscriptions of the same millisecond cannot be told apart.
        self.clock.advance(timedelta(milliseconds=1))
        return await self.engine.subscriptions.find(NAME)

    async def close(self) -> None:
        await self.notifier.close()
        await self.impatient.close()

    async def relay(self, holder: str = "r1", shard: Shard | None = None, **changes: Any) -> Relay:
        subscription = replace(await self.engine.subscriptions.find(NAME), **changes)
        notifier = self.impatient if holder.startswith("impatient") else self.notifier
        context = RelayContext(self.engine, notifier, holder, random.Random(5))
        return Relay(context, shard or self.shard, subscription)

    async def settle_all(self, worker: str = "w1") -> int:
        """Run every job that is queued; how many."""
        claims = await claim(self.engine, worker, limit=100)
        await self.engine.worker_api.settle([success(one) for one in claims])
        return len(claims)

    async def parked(self, state: ParkedState = ParkedState.WAITING) -> list[Parked]:
        return await self.shard.read_parked(NAME, state, 1_000)

    def arrivals(self) -> dict[str, list[int]]:
        """The versions of each job that the sink took, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for id in self.taken:
            _, job, version = id.split("_")
            found[job].append(int(version))
        return dict(found)

    def _answer(self, request: SinkRequest) -> Answer:
        ids = event_ids(request)
        if any(map(self.refuses, ids)):
            return self.failing
        self.taken += ids
        return reply(204)


def event_ids(request: SinkRequest) -> Sequence[str]:
    body = msgspec.json.decode(request.body)
    return [one["id"] for one in (body if isinstance(body, list) else [body])]


def plain(job: JobId) -> str:
    """A job as it is written in the ids of its events."""
    return job.replace("-", "")
