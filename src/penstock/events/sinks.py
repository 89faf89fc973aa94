"""The sinks of subscriptions as the engine reaches them: their addresses are checked, and test events are sent."""

import random
from collections.abc import Sequence

from penstock.config import Settings
from penstock.engine import Engine
from penstock.events.addresses import AddressRules, address_rules
from penstock.events.cloudevents import OutgoingEvent
from penstock.events.delivery_plan import GONE
from penstock.events.notifier import Delivered, Delivery, Gone, Notifier, PartlyDelivered, Rejected
from penstock.model.clock import Clock, to_millis
from penstock.model.events import JobEvent, event_id
from penstock.model.ids import ShardId, new_job_id
from penstock.model.lifecycle import State
from penstock.model.subscriptions import Subscription, SubscriptionSink, WebhookSink
from penstock.model.wire.subscriptions import TestOutcome

TEST_NAME = "penstock.test"
"""The job type, queue and move of test events."""


def rules_of(settings: Settings) -> AddressRules:
    """Where this system may send webhooks: to this machine too while only this machine can ask for it."""
    return address_rules(settings.webhooks, loopback=not settings.server.needs_keys)


def make_notifier(settings: Settings, clock: Clock) -> "SinkNotifiers":
    return SinkNotifiers(settings, clock)


class SinkNotifiers:
    """Keeps the Notifier protocol for every kind of sink, by a notifier for each, which is made at its first use."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._made: dict[type[SubscriptionSink], Notifier] = {}

    async def deliver(self, subscription: Subscription, events: Sequence[OutgoingEvent]) -> Delivery:
        return await self._find(subscription.sink).deliver(subscription, events)

    async def check(self, sink: SubscriptionSink) -> None:
        await self._find(sink).check(sink)

    async def close(self) -> None:
        for notifier in self._made.values():
            await notifier.close()

    def _find(self, sink: SubscriptionSink) -> Notifier:
        if type(sink) not in self._made:
            self._made[type(sink)] = self._make(sink)
        return self._made[type(sink)]

    def _make(self, sink: SubscriptionSink) -> Notifier:
        source = self._settings.webhooks.source
        if isinstance(sink, WebhookSink):
            from penstock.events.webhook import WebhookNotifier

            return WebhookNotifier(rules_of(self._settings), source, self._clock)
        from penstock.events.sns import SnsNotifier

        return SnsNotifier(source, self._clock)


def connect_sinks(engine: Engine) -> None:
    """Let the engine reach sinks. Nothing is opened before it does."""
    if engine.subscriptions.sinks is None:
        engine.subscriptions.sinks = NotifierSinks(engine.settings, engine.clock, random.Random())


class NotifierSinks:
    """Keeps the engine's Sinks protocol by a notifier, which is made at its first use: most processes need none."""

    def __init__(self, settings: Settings, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._notifier: Notifier | None = None

    async def check(self, sink: SubscriptionSink) -> None:
        await self._get_notifier().check(sink)

    async def send_test(self, subscription: Subscription) -> TestOutcome:
        event = self._test_event()
        outcome = await self._get_notifier().deliver(subscription, [OutgoingEvent(event, is_test=True)])
        return TestOutcome(
            event=event.id,
            delivered=isinstance(outcome, Delivered),
            status=_status(outcome),
            detail=None if isinstance(outcome, Delivered | PartlyDelivered) else outcome.detail,
            took_seconds=outcome.took.total_seconds(),
        )

    async def close(self) -> None:
        if self._notifier is not None:
            await self._notifier.close()

    def _get_notifier(self) -> Notifier:
        if self._notifier is None:
            self._notifier = make_notifier(self._settings, self._clock)
        return self._notifier

    def _test_event(self) -> JobEvent:
        now = self._clock.now()
        job = new_job_id(to_millis(now), ShardId(0), self._rng)
        return JobEvent(
            id=event_id(job, 1),
            job=job,
            version=1,
            type=TEST_NAME,
            queue=TEST_NAME,
            move="test",
            before=None,
            after=State.SUCCEEDED,
            attempt=0,
            reason=None,
            at=now,
        )


def _status(outcome: Delivery) -> int | None:
    match outcome:
        case Delivered(status=status) | Rejected(status=status):
            return status
        case Gone():
            return GONE
        case _:
            return None
