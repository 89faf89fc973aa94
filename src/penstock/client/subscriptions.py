"""Subscriptions, by the blocking client. `tools/twin.py` writes the same for asyncio from this file."""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol, TypeVar, Unpack

from penstock.client import subscription_calls as calls
from penstock.client.protocol import ClientProtocol, Exchange
from penstock.client.subscription_calls import SubscriptionChanges, SubscriptionTerms
from penstock.model.wire.subscriptions import (
    DeliveryItem,
    MadeSubscription,
    ReplayAnswer,
    SubscriptionItem,
    SubscriptionReport,
    TestOutcome,
)

T = TypeVar("T")


class RunExchange(Protocol):
    """Carries out what the protocol says, and gives its result."""

    def __call__(self, exchange: Exchange[T]) -> T: ...


class ClientSubscriptions:
    """Subscriptions of the server, as `client.subscriptions`. All of it needs a key with the scope `subscriptions`."""

    def __init__(self, run: RunExchange, protocol: ClientProtocol) -> None:
        self._run = run
        self._protocol = protocol

    def create(
        self, name: str, url: str, *, secret: str | None = None, **terms: Unpack[SubscriptionTerms]
    ) -> MadeSubscription:
        """Have job events posted to a URL from now on; `secret` of the answer is shown this once.

        It is None if an earlier answer was lost on its way: `rotate` gives another one then.
        """
        return self._run(self._protocol.ask(calls.create(name, url, terms, secret)))

    def list(self) -> tuple[SubscriptionItem, ...]:
        """All of them by name, without their secrets."""
        return self._run(self._protocol.ask(calls.subscriptions()))

    def get(self, name: str) -> SubscriptionReport:
        """The subscription and how its deliveries stand on each shard; NotFound if there is none of this name."""
        return self._run(self._protocol.ask(calls.get(name)))

    def update(self, name: str, **changes: Unpack[SubscriptionChanges]) -> SubscriptionItem:
        """Change what is named, leave the rest."""
        return self._run(self._protocol.ask(calls.change(name, changes)))

    def pause(self, name: str) -> SubscriptionItem:
        """Let nothing be delivered until it is resumed; events wait as long as the journal keeps them."""
        return self._run(self._protocol.ask(calls.pause(name)))

    def resume(self, name: str) -> SubscriptionItem:
        """Go on delivering, also after Penstock has disabled it."""
        return self._run(self._protocol.ask(calls.resume(name)))

    def test(self, name: str) -> TestOutcome:
        """Send one test event and say what came of it."""
        return self._run(self._protocol.ask(calls.test(name)))

    def rotate(self, name: str, *, secret: str | None = None) -> MadeSubscription:
        """Sign with a new secret, which is shown this once, and for a day with the one before it too."""
        return self._run(self._protocol.ask(calls.rotate(name, secret)))

    def replay(
        self,
        name: str,
        *,
        event: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        dead: bool = False,
    ) -> ReplayAnswer:
        """Deliver again: one event, those from `since` to `until` (now) that fit the filter, or all dead ones."""
        return self._run(self._protocol.ask(calls.replay(name, event, since, until, dead=dead)))

    def deliveries(self, name: str, *, page_size: int | None = None) -> Iterator[DeliveryItem]:
        """The delivery log, newest first, fetched page by page as it is consumed."""
        before: datetime | None = None
        while True:
            page = self._run(self._protocol.ask(calls.deliveries(name, before, page_size)))
            yield from page.deliveries
            before = page.before
            if before is None:
                return

    def delete(self, name: str) -> None:
        """Remove a subscription and its delivery log."""
        self._run(self._protocol.ask(calls.delete(name)))
