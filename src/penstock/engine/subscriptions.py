"""Subscriptions: creating, changing, pausing and deleting them, and their secrets.

Subscriptions are notices, so every process knows them from its catalog: relays in this process see a change at once,
others within a second. Every change is decided on what the store has at that moment.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Protocol

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from penstock.engine.catalog import CatalogReading
from penstock.engine.history import require_events
from penstock.engine.parts import EngineParts
from penstock.model.errors import Conflict, Invalid, KeyConflict, NotFound
from penstock.model.keys import RandomBytes
from penstock.model.notices import Name, Notice, NoticeKind
from penstock.model.signatures import new_signing_secret, signing_key
from penstock.model.subscriptions import (
    MOST_SUBSCRIPTIONS,
    SigningSecret,
    SnsSink,
    Subscription,
    SubscriptionSink,
    SubscriptionState,
    check_terms,
    disable,
    pause,
    resume,
    rotate,
)
from penstock.model.wire.subscriptions import (
    MadeSubscription,
    SubscriptionChange,
    SubscriptionItem,
    SubscriptionRequest,
    SubscriptionSource,
    TestOutcome,
    subscription_fields,
)
from penstock.store.answers import gather_answers

logger = logging.getLogger("penstock.engine")

_read_subscription = lru_cache(maxsize=4 * MOST_SUBSCRIPTIONS)(msgspec.json.Decoder(Subscription).decode)

ChangeSubscription = Callable[[Subscription, datetime], Subscription]
"""What a subscription becomes at an instant."""


class Sinks(Protocol):
    """Reaches the sinks of subscriptions; `events.sinks` has it."""

    async def check(self, sink: SubscriptionSink) -> None:
        """Raise Invalid if events may not be sent to this sink, or its address cannot be found."""
        ...

    async def send_test(self, subscription: Subscription) -> TestOutcome:
        """Send one event that is about no job, and say what came of it."""
        ...

    async def close(self) -> None: ...


class Subscriptions:
    """The subscriptions of this system. `sinks` is set by a process that can reach them: see `events.sinks`."""

    def __init__(self, parts: EngineParts, random_bytes: RandomBytes = secrets.token_bytes) -> None:
        self._store = parts.store
        self._catalog = parts.catalog
        self._settings = parts.settings
        self._random_bytes = random_bytes
        self._read_from: Mapping[Name, Notice] | None = None
        self._known: dict[str, Subscription] = {}
        self.sinks: Sinks | None = None

    async def read(self) -> Mapping[str, Subscription]:
        """Every subscription by name, of at most a second ago; decoded once per reading of the catalog."""
        notices = (await self._catalog.read()).notices
        if notices is not self._read_from:
            self._known, self._read_from = subscriptions_in(notices), notices
        return self._known

    async def find(self, name: str) -> Subscription:
        """The subscription as it is stored, with its secrets; NotFound if there is none."""
        return _named(await self.read(), name)

    async def list(self) -> list[SubscriptionItem]:
        """By name, without their secrets."""
        known = await self.read()
        return [self.item(known[name]) for name in sorted(known)]

    async def create(self, request: SubscriptionRequest, key: str | None = None) -> tuple[MadeSubscription, bool]:
        """A new subscription, durable once this returns; True with it. Its secret is in the answer and nowhere else.

        The same request under the same `key` gives the subscription back, without its secret and with False.
        KeyConflict if the key is of another request, Conflict if the name is taken.
        """
        require_events(self._settings.events)
        fresh = self._new(request, key, await self._store.now())
        known = await self.read()
        # The store decides below: this only spares a lookup of addresses.
        if _repeated(known, fresh) is None and request.name not in known:
            await self._reachable.check(request.sink)
        made, is_new = fresh, True

        def add(reading: CatalogReading) -> dict[str, bytes | None]:
            nonlocal made, is_new
            known = subscriptions_in(reading.notices)
            repeated = _repeated(known, fresh)
            made, is_new = repeated or _dated(fresh, reading.shard_now), repeated is None
            return _encode(_admit(known, made)) if is_new else {}

        await self._catalog.change(NoticeKind.SUBSCRIPTION, add)
        return self._made(made, fresh.secrets[0].text if is_new else None), is_new

    async def update(self, name: str, change: SubscriptionChange) -> SubscriptionItem:
        """Change what is said and leave the rest."""
        await self.find(name)
        if change.sink is not UNSET:
            await self._reachable.check(change.sink)
        return await self._change(name, change.laid_over)

    async def pause(self, name: str) -> SubscriptionItem:
        """Deliver nothing until it is resumed; events wait in the journal as long as that keeps them."""
        return await self._change(name, pause)

    async def resume(self, name: str) -> SubscriptionItem:
        """Deliver again, from where it stopped."""
        require_events(self._settings.events)
        return await self._change(name, resume)

    async def disable(self, name: str, reason: str, seen_at: datetime | None = None) -> None:
        """Deliver nothing until it is resumed: the sink said that it is gone.

        Left alone if it was deleted or is not active, or was changed since `seen_at` (its `changed_at` as the caller
        knew it): the refusal was not of what it is now.
        """

        def decide(reading: CatalogReading) -> dict[str, bytes | None]:
            known = subscriptions_in(reading.notices).get(name)
            if known is None or known.state is not SubscriptionState.ACTIVE:
                return {}
            if seen_at is not None and known.changed_at != seen_at:
                return {}
            return _encode(disable(known, reading.shard_now, reason))

        await self._catalog.change(NoticeKind.SUBSCRIPTION, decide)

    async def rotate(self, name: str, secret: str | None = None) -> MadeSubscription:
        """Sign with a new secret, and with the one before it for a day longer. Only this answer has it."""
        fresh = secret or new_signing_secret(self._random_bytes)
        changed = await self._store_change(name, lambda one, now: rotate(one, fresh, now))
        return self._made(changed, fresh)

    async def delete(self, name: str) -> None:
        """Remove a subscription, its place in the journals and its delivery log; NotFound if there is none."""

        removed: list[Subscription] = []

        def decide(reading: CatalogReading) -> dict[str, bytes | None]:
            removed[:] = [_named(subscriptions_in(reading.notices), name)]
            return {name: None}

        await self._catalog.change(NoticeKind.SUBSCRIPTION, decide)
        # A shard that does not answer keeps what its relay knew. No other subscription ever gets that name.
        await gather_answers([shard.drop_relay(removed[0].relay_name) for shard in self._store.shards()])

    async def test(self, name: str) -> TestOutcome:
        """Send one test event now, whatever the subscription's state, and say what came of it. It is not retried."""
        return await self._reachable.send_test(await self.find(name))

    async def check(self, request: SubscriptionRequest) -> None:
        """Raise Invalid if no subscription can be made like this, or its sink may not be used."""
        self._new(request, None, await self._store.now())
        await self._reachable.check(request.sink)

    async def declare(self, request: SubscriptionRequest) -> None:
        """Make a subscription of the settings what its table says; its state, and a secret made here, stay.

        An unchanged one is left untouched. Nothing is checked again that `check` has.
        """
        fresh = self._new(request, None, await self._store.now())

        def decide(reading: CatalogReading) -> dict[str, bytes | None]:
            known = subscriptions_in(reading.notices)
            if request.name not in known:
                return _encode(_admit(known, replace(fresh, declared=True)))
            before = known[request.name]
            after = _declared(before, fresh, given=request.secret is not None)
            return {} if after == before else _encode(after)

        await self._catalog.change(NoticeKind.SUBSCRIPTION, decide)

    def item(self, subscription: Subscription) -> SubscriptionItem:
        """As clients see it: nothing of its secrets."""
        return SubscriptionItem(**subscription_fields(subscription, self.source(subscription)))

    def source(self, subscription: Subscription) -> SubscriptionSource:
        if not subscription.declared:
            return SubscriptionSource.API
        is_there = subscription.name in self._settings.subscriptions
        return SubscriptionSource.SETTINGS if is_there else SubscriptionSource.REMOVED

    async def close(self) -> None:
        if self.sinks is not None:
            await self.sinks.close()

    @property
    def _reachable(self) -> Sinks:
        if self.sinks is None:
            raise RuntimeError("this process has no access to sinks: `events.sinks.connect_sinks` gives it")
        return self.sinks

    def _made(self, subscription: Subscription, secret: str | None) -> MadeSubscription:
        secret = None if isinstance(subscription.sink, SnsSink) else secret
        return MadeSubscription(**subscription_fields(subscription, self.source(subscription)), secret=secret)

    def _new(self, request: SubscriptionRequest, key: str | None, now: datetime) -> Subscription:
        """The subscription that is asked for; Invalid names what is wrong with it."""
        if request.secret is not None and isinstance(request.sink, SnsSink):
            raise Invalid("secret: SNS signs what it sends by itself; leave it out")
        secret = request.secret or new_signing_secret(self._random_bytes)
        signing_key(secret)
        subscription = Subscription(
            name=request.name,
            sink=request.sink,
            filter=request.filter.checked(),
            include=request.include,
            batch=request.batch,
            limits=request.limits,
            secrets=(SigningSecret(text=secret, created_at=now),),
            created_at=now,
            changed_at=now,
            request_key=key,
            fingerprint=None if key is None else hashlib.sha256(msgspec.json.encode(request)).hexdigest(),
        )
        check_terms(subscription)
        return subscription

    async def _change(self, name: str, change: ChangeSubscription) -> SubscriptionItem:
        return self.item(await self._store_change(name, change))

    async def _store_change(self, name: str, change: ChangeSubscription) -> Subscription:
        """Store what `change` makes of the subscription; NotFound if there is none."""
        changed: list[Subscription] = []

        def decide(reading: CatalogReading) -> dict[str, bytes | None]:
            changed[:] = [change(_named(subscriptions_in(reading.notices), name), reading.shard_now)]
            return _encode(*changed)

        await self._catalog.change(NoticeKind.SUBSCRIPTION, decide)
        return changed[0]


def subscriptions_in(notices: Mapping[Name, Notice]) -> dict[str, Subscription]:
    """The subscriptions by name, without those that another version wrote and this one cannot read."""
    found: dict[str, Subscription] = {}
    for one in notices.values():
        if one.kind == NoticeKind.SUBSCRIPTION and one.value is not None:
            try:
                found[one.name] = _read_subscription(one.value)
            except msgspec.ValidationError as error:
                logger.warning("subscription %s cannot be read by this version: %s", one.name, error)
    return found


def _named(known: Mapping[str, Subscription], name: str) -> Subscription:
    if name not in known:
        raise NotFound(
            f"there is no subscription {name!r}; `penstock subscriptions list` shows those there are",
        )
    return known[name]


def _repeated(known: Mapping[str, Subscription], fresh: Subscription) -> Subscription | None:
    """The subscription that an earlier request under the same key made; KeyConflict if that was another request."""
    if fresh.request_key is None:
        return None
    earlier = next((one for one in known.values() if one.request_key == fresh.request_key), None)
    if earlier is not None and earlier.fingerprint != fresh.fingerprint:
        raise KeyConflict(
            f"the idempotency key {fresh.request_key!r} made subscription {earlier.name} with another body; "
            "send the same body again, or use another key"
        )
    return earlier


def _admit(known: Mapping[str, Subscription], fresh: Subscription) -> Subscription:
    """The new subscription; Conflict if its name is taken, Invalid if there are too many."""
    if fresh.name in known:
        raise Conflict(
            f"there is a subscription {fresh.name!r} already; `penstock subscriptions update {fresh.name}` changes it, "
            "or choose another name"
        )
    if len(known) >= MOST_SUBSCRIPTIONS:
        raise Invalid(f"there are {len(known):,} subscriptions, and no more are possible; delete one first")
    return fresh


def _dated(fresh: Subscription, now: datetime) -> Subscription:
    """A new subscription as of an instant of the store's own clock: that is where its events begin."""
    return replace(
        fresh,
        created_at=now,
        changed_at=now,
        secrets=tuple(replace(secret, created_at=now) for secret in fresh.secrets),
    )


def _declared(before: Subscription, fresh: Subscription, *, given: bool) -> Subscription:
    """A known subscription with the terms of its table, and with the secret that the settings give."""
    terms = {name: getattr(fresh, name) for name in ("sink", "filter", "include", "batch", "limits")}
    after = replace(before, **terms, declared=True)
    if given and before.secrets[0].text != fresh.secrets[0].text:
        after = rotate(after, fresh.secrets[0].text, fresh.changed_at)
    return before if after == before else replace(after, changed_at=fresh.changed_at)


def _encode(*subscriptions: Subscription) -> dict[str, bytes | None]:
    return {one.name: msgspec.json.encode(one) for one in subscriptions}
