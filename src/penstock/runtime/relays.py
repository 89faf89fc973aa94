"""The loops of relays: one for each shard and active subscription, in each scheduler and in `penstock up`."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from msgspec import Struct

from penstock.engine import Engine
from penstock.engine.signals import JOURNAL_WANTED_EVERY
from penstock.events import Notifier
from penstock.events.relay import Relay, RelayContext
from penstock.events.sinks import make_notifier
from penstock.model.clock import within
from penstock.model.ids import ShardId
from penstock.model.subscriptions import Subscription, SubscriptionState
from penstock.scheduler import run_service
from penstock.store import Shard

CHECK_INTERVAL: Final = timedelta(seconds=1)
"""How soon a new subscription or shard gets its relays, where the signal about it was missed."""
GATHER_SPAN: Final = timedelta(milliseconds=5)
GATHER_SPAN_PER_RELAY: Final = timedelta(milliseconds=1)
"""After a move relays wait so long for more moves: many of them would otherwise read the journal at every move."""
RESIGN_WITHIN: Final = timedelta(seconds=2)

RelayKey: TypeAlias = tuple[ShardId, str]


class RunningRelay(Struct, frozen=True):
    """A relay with its loop, on the shard and for the subscription that it was started for."""

    relay: Relay
    shard: Shard
    subscribed: Subscription
    task: "asyncio.Task[None]"


class RelayServices:
    """Starts and ends the loops of relays. While there is no subscription, nothing runs and nothing is connected to."""

    def __init__(self, engine: Engine, holder: str) -> None:
        self.wake = asyncio.Event()
        self._engine = engine
        self._holder = holder
        self._notifier: Notifier | None = None
        self._running: dict[RelayKey, RunningRelay] = {}
        self._gathering: asyncio.Task[None] | None = None
        self._wanted_at = float("-inf")
        self._unsubscribe_notices = engine.signals.notices.subscribe(lambda _: self.wake.set())
        self._unsubscribe_journal: Callable[[], None] = _nothing
        self._has_ended = False

    @property
    def relays(self) -> tuple[RelayKey, ...]:
        """The shards and subscriptions that have a loop here."""
        return tuple(sorted(self._running))

    @property
    def is_connected(self) -> bool:
        """Whether it has needed a notifier, or listens to journals."""
        return self._notifier is not None or self._wanted_at > float("-inf")

    async def step(self) -> timedelta:
        """Start the relays of new subscriptions and shards, tell the others what has changed, and end the rest."""
        known = {} if self._has_ended else await self._engine.subscriptions.read()
        shards = {one.shard: one for one in self._engine.store.shards() if one.keeps_events}
        for key, running in list(self._running.items()):
            if not _is_current(running, shards.get(key[0]), known.get(key[1])):
                await self._end(key)
        for shard in shards.values():
            for subscription in known.values():
                self._supervise(shard, subscription)
        self._want_journals()
        return CHECK_INTERVAL

    async def end(self) -> None:
        """End all loops; each relay lets go of its role."""
        self._has_ended = True
        self._unsubscribe_notices()
        if self._gathering is not None:
            self._gathering.cancel()
        await asyncio.gather(*(self._end(key) for key in list(self._running)))
        self._want_journals()
        if self._notifier is not None:
            await self._notifier.close()

    def _supervise(self, shard: Shard, subscription: Subscription) -> None:
        key = shard.shard, subscription.name
        running = self._running.get(key)
        if running is not None:
            if running.relay.subscription != subscription:
                running.relay.subscription = subscription
                running.relay.wake.set()
        elif subscription.state is SubscriptionState.ACTIVE:
            self._start(key, shard, subscription)

    def _start(self, key: RelayKey, shard: Shard, subscription: Subscription) -> None:
        relay = Relay(self._context(), shard, subscription)
        task = asyncio.ensure_future(_run(relay, f"relay {subscription.name} {shard.shard}"))
        self._running[key] = RunningRelay(relay, shard, subscription, task)

    async def _end(self, key: RelayKey) -> None:
        running = self._running.pop(key)
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)

    def _context(self) -> RelayContext:
        self._notifier = self._notifier or make_notifier(self._engine.settings, self._engine.clock)
        return RelayContext(self._engine, self._notifier, self._holder, random.Random())

    def _want_journals(self) -> None:
        """Listen to the signal about journals while there are relays, and keep other processes sending it."""
        now = self._engine.clock.monotonic()
        if not self._running:
            self._unsubscribe_journal()
            self._wanted_at = float("-inf")
        elif self._wanted_at == float("-inf"):
            self._unsubscribe_journal = self._engine.signals.journal.subscribe(lambda _: self._gather())
            self._wanted_at = now
        elif now - self._wanted_at >= JOURNAL_WANTED_EVERY.total_seconds():
            self._engine.signals.journal.wanted.send(None)
            self._wanted_at = now

    def _gather(self) -> None:
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.ensure_future(self._wake_relays())

    async def _wake_relays(self) -> None:
        span = GATHER_SPAN + GATHER_SPAN_PER_RELAY * len(self._running)
        await self._engine.clock.sleep(min(span, CHECK_INTERVAL))
        for one in self._running.values():
            one.relay.wake.set()


def _nothing() -> None:
    """No signal is subscribed to."""


def _is_current(running: RunningRelay, shard: Shard | None, subscription: Subscription | None) -> bool:
    """Whether a relay still has its shard and its subscription. One that is not active ends once it has resigned.

    Another subscription under the name of a deleted one has another place in the journal, so it gets another relay.
    """
    if running.shard is not shard or subscription is None:
        return False
    if subscription.created_at != running.subscribed.created_at:
        return False
    return subscription.state is SubscriptionState.ACTIVE or not running.relay.has_resigned


async def _run(relay: Relay, name: str) -> None:
    """Step the relay until it is cancelled; then it lets go of its role."""
    try:
        await run_service(name, relay.step, relay.wake)
    finally:
        await within(RESIGN_WITHIN, relay.resign())
