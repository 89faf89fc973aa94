"""Deliveries of subscriptions: how they stand on every shard, their log, and events that are to be delivered again."""

from collections.abc import Sequence
from datetime import datetime
from heapq import merge

from msgspec.structs import replace

from penstock.engine.parts import EngineParts
from penstock.engine.replays import MOST_REPLAYED, ReplayPlan, find_event, find_span
from penstock.engine.shards import ask_shards
from penstock.engine.subscriptions import Subscriptions
from penstock.model.clock import seconds
from penstock.model.errors import Conflict, NotFound
from penstock.model.events import parse_event_id
from penstock.model.ids import shard_of
from penstock.model.journal import Parked, ParkedState
from penstock.model.subscriptions import Subscription, SubscriptionState
from penstock.model.wire.subscriptions import (
    CircuitState,
    DeliveryItem,
    DeliveryPage,
    RelayItem,
    ReplayAnswer,
    ReplayRequest,
    SubscriptionReport,
    delivery_item,
    subscription_fields,
)
from penstock.store import Shard
from penstock.store.answers import gather_answers, require

MOST_OF_AN_INSTANT = 100
"""So many lines of one millisecond a page may have beyond its limit."""


class Deliveries:
    """Reads what the relays of every shard have written, and asks them to deliver again."""

    def __init__(self, parts: EngineParts, subscriptions: Subscriptions) -> None:
        self._store = parts.store
        self._signals = parts.signals
        self._subscriptions = subscriptions
        self._retention = seconds(parts.settings.retention.events_seconds)

    async def report(self, name: str) -> SubscriptionReport:
        """A subscription with the totals of each shard. Shards that give no answer are named."""
        subscription = await self._subscriptions.find(name)
        found, missing = await ask_shards(self._store, lambda shard: _read_relay(shard, subscription))
        fields = subscription_fields(subscription, self._subscriptions.source(subscription))
        return SubscriptionReport(**fields, relays=tuple(found), missing_shards=missing)

    async def relays(self) -> list[tuple[str, RelayItem]]:
        """How the relays of all subscriptions stand, by name and shard; without shards that give no answer."""
        known = await self._subscriptions.read()
        if not known:
            return []
        found, _ = await ask_shards(
            self._store, lambda shard: _read_relays(shard, [known[name] for name in sorted(known)])
        )
        return [pair for pairs in found for pair in pairs]

    async def log(self, name: str, before: datetime | None, limit: int) -> DeliveryPage:
        """A page of the delivery logs of all shards, newest first."""
        relay = (await self._subscriptions.find(name)).relay_name
        asked = limit + MOST_OF_AN_INSTANT
        found, missing = await ask_shards(self._store, lambda shard: _read_log(shard, relay, before, asked))
        newest_first = list(merge(*found, key=_at, reverse=True))
        page = cut_page(newest_first, limit)
        has_more = len(page) < len(newest_first) or any(len(one) == asked for one in found)
        return DeliveryPage(tuple(page), page[-1].at if has_more else None, missing)

    async def replay(self, name: str, request: ReplayRequest) -> ReplayAnswer:
        """Have events delivered again: one, those of a span that the filter fits, or the dead ones.

        What the relays have not come to yet is left to them. Conflict if the subscription is disabled, JournalGone if
        a span is no longer kept, Invalid if it has more than MOST_REPLAYED events; nothing is replayed then.
        """
        subscription = await self._subscriptions.find(name)
        if subscription.state is SubscriptionState.DISABLED:
            raise Conflict(
                f"subscription {name} is disabled ({subscription.reason}); "
                f"`penstock subscriptions resume {name}` first, then replay"
            )
        answer = await self._park_again(subscription, request)
        self._signals.journal.tell()
        return answer

    async def _park_again(self, subscription: Subscription, request: ReplayRequest) -> ReplayAnswer:
        if request.event is not None:
            return await self._replay_event(subscription, request.event)
        if request.dead:
            return await self._replay_dead(subscription.relay_name)
        return await self._replay_span(subscription, request)

    async def _replay_event(self, subscription: Subscription, text: str) -> ReplayAnswer:
        job, version = parse_event_id(text)
        shard = next((one for one in self._store.shards() if one.shard == shard_of(job)), None)
        if shard is None:
            raise NotFound(f"there is no event {text}: no shard has the number {shard_of(job)}")
        found = await find_event(shard, subscription, job, version)
        await _park(shard, subscription.relay_name, found)
        return ReplayAnswer(len(found))

    async def _replay_span(self, subscription: Subscription, request: ReplayRequest) -> ReplayAnswer:
        now = await self._store.now()
        plan = ReplayPlan(
            subscription=subscription,
            since=request.since or now,
            until=request.until or now,
            kept_since=now - self._retention,
        )
        shards = self._store.shards()
        found = require(await gather_answers([find_span(shard, plan) for shard in shards]))
        plan.check_count(sum(map(len, found)))
        parked = [_park(shard, subscription.relay_name, events) for shard, events in zip(shards, found, strict=True)]
        require(await gather_answers(parked))
        return ReplayAnswer(sum(map(len, found)))

    async def _replay_dead(self, relay: str) -> ReplayAnswer:
        left, events = MOST_REPLAYED, 0
        for shard in self._store.shards():
            dead = await shard.read_parked(relay, ParkedState.DEAD, left + 1)
            await _park(shard, relay, [_revived(one) for one in dead[:left]])
            events += len(dead[:left])
            if len(dead) > left:
                return ReplayAnswer(events, more=True)
            left -= len(dead)
        return ReplayAnswer(events)


def cut_page(newest_first: Sequence[DeliveryItem], limit: int) -> Sequence[DeliveryItem]:
    """About `limit` deliveries. All of one instant are on the same page, as the next one begins before that."""
    if len(newest_first) <= limit:
        return newest_first
    first_left = newest_first[limit].at
    page = [one for one in newest_first[:limit] if one.at != first_left]
    return page or [one for one in newest_first if one.at == first_left]


async def _read_relays(shard: Shard, subscriptions: Sequence[Subscription]) -> list[tuple[str, RelayItem]]:
    return [(one.name, await _read_relay(shard, one)) for one in subscriptions]


async def _read_relay(shard: Shard, subscription: Subscription) -> RelayItem:
    head = await shard.number_entries()
    totals = await shard.relay_totals(subscription.relay_name)
    state = totals.state
    # A relay that has not written yet begins where the subscription does.
    at = await shard.find_number(subscription.created_at) + 1 if state.position is None else state.position.number
    waiting = await shard.read_journal(at - 1, 1)
    oldest = waiting.entries[0].at if waiting.entries else None
    return RelayItem(
        shard=shard.shard,
        circuit=CircuitState.CLOSED if state.retry_at is None else CircuitState.OPEN,
        failures=state.failures,
        retry_at=state.retry_at,
        lag_entries=max(head + 1 - at, 0) if oldest is not None else 0,
        lag_seconds=0.0 if oldest is None else max((await shard.now() - oldest).total_seconds(), 0.0),
        waiting=totals.waiting,
        dead=totals.dead,
        delivered=totals.delivered,
        failed=totals.failed,
    )


async def _read_log(shard: Shard, relay: str, before: datetime | None, limit: int) -> list[DeliveryItem]:
    return [delivery_item(shard.shard, one) for one in await shard.deliveries(relay, before, limit)]


async def _park(shard: Shard, relay: str, events: Sequence[Parked]) -> None:
    if events:
        await shard.park_again(relay, events)


def _revived(dead: Parked) -> Parked:
    """A dead event, with all its attempts before it again."""
    return replace(dead, state=ParkedState.WAITING, attempts=0, due_at=None, error=None)


def _at(item: DeliveryItem) -> datetime:
    return item.at
