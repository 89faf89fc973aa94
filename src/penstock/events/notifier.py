"""What every notifier promises: it delivers events to one kind of sink and says what came of it.

`penstock.testing.notifier_contract` holds each to it.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol, TypeAlias

from msgspec import Struct

from penstock.events.cloudevents import OutgoingEvent
from penstock.model.events import EventId
from penstock.model.subscriptions import Subscription, SubscriptionSink


class Delivered(Struct, frozen=True):
    """The sink has the events."""

    status: int
    took: timedelta


class Rejected(Struct, frozen=True):
    """The sink answered, but did not take the events. `retry_after`: the pause it asks for, a day at most."""

    status: int
    detail: str
    took: timedelta
    retry_after: timedelta | None = None


class Gone(Struct, frozen=True):
    """The sink says that it is gone for good and wants no more events."""

    detail: str
    took: timedelta


class Unreachable(Struct, frozen=True):
    """No answer, not a whole one in time, or the address may not be used. The sink may have the events."""

    detail: str
    took: timedelta


Undelivered: TypeAlias = Rejected | Unreachable


class PartlyDelivered(Struct, frozen=True):
    """The sink has some of the events, judged each by itself. Those that are in neither were not sent."""

    delivered: frozenset[EventId]
    failed: Mapping[EventId, Undelivered]
    status: int
    took: timedelta


Delivery: TypeAlias = Delivered | PartlyDelivered | Rejected | Gone | Unreachable


class Notifier(Protocol):
    """Delivers to sinks of one kind."""

    async def deliver(self, subscription: Subscription, events: Sequence[OutgoingEvent]) -> Delivery:
        """Send the events, in order: in one message, or in one each where the sink judges each by itself.

        Ends within a deadline, and never raises for what a sink does. One event unless the subscription has a batch.
        Sending the same events again gives the messages the same ids. After an event that failed, no later one of its
        job is sent.
        """
        ...

    async def check(self, sink: SubscriptionSink) -> None:
        """Raise Invalid if events may not be sent to this sink, or its address cannot be found."""
        ...

    async def close(self) -> None:
        """End its connections; deliveries under way are Unreachable. May be called again."""
        ...
