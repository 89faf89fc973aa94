"""Subscriptions: which job events are delivered, to which sink, how fast, and signed with which secrets. Pure."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from penstock.model.clock import Instant, to_millis
from penstock.model.errors import Conflict, Invalid
from penstock.model.lifecycle import State
from penstock.model.names import Name, is_name
from penstock.model.signatures import signing_key
from penstock.model.text import suggest

MOST_BATCHED: Final = 100
LEAST_PUBLISHED: Final = 10
"""Events that are published to a topic in one call, even where no batch is asked for: it costs as much as one."""
MOST_IN_FLIGHT: Final = 100
MOST_PER_SECOND: Final = 100_000.0
MOST_FILTERED: Final = 100
NAME_LENGTH: Final = 128
URL_LENGTH: Final = 2048
MOST_SUBSCRIPTIONS: Final = 1_000
"""Every process reads all of them every second."""
SECRET_OVERLAP: Final = timedelta(days=1)
"""How long the secret before a rotation still signs."""


class SubscriptionState(StrEnum):
    """`paused` by an operator, `disabled` by Penstock, because the sink is gone; either keeps its place."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


class EventContent(StrEnum):
    """What is delivered of an event: its facts and the job item, or the facts only."""

    ITEM = "item"
    FACTS = "facts"


class WebhookSink(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="webhook"):
    """An HTTP endpoint that events are posted to."""

    url: Annotated[str, Meta(max_length=URL_LENGTH)]

    @property
    def address(self) -> str:
        return self.url


class SnsSink(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="sns"):
    """A topic of Amazon SNS that events are published to, by its ARN."""

    topic: Annotated[str, Meta(max_length=URL_LENGTH)]

    @property
    def address(self) -> str:
        return self.topic

    @property
    def is_fifo(self) -> bool:
        """Whether the topic keeps the order of messages."""
        return self.topic.endswith(".fifo")

    @property
    def region(self) -> str:
        return self.topic.split(":")[3]


SubscriptionSink: TypeAlias = WebhookSink | SnsSink
"""Where events go: a union by `kind`."""

_TOPIC = re.compile(r"arn:aws[a-z-]{0,20}:sns:[a-z]{2}[a-z0-9-]{3,30}:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")


def sink_of(address: str) -> SubscriptionSink:
    """The sink of an address as users write it: an ARN is a topic, anything else the URL of a webhook."""
    return SnsSink(address) if address.startswith("arn:") else WebhookSink(address)


def check_topic(topic: str) -> None:
    """Raise Invalid if this cannot be the ARN of an SNS topic."""
    if _TOPIC.fullmatch(topic) is None:
        raise Invalid(
            f"sink: {topic[:200]!r} is not an SNS topic; write its ARN, such as arn:aws:sns:us-east-1:123456789012:jobs"
        )


class EventFilter(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which events are wanted: those that fit every list that is given. None is no limit.

    `states` are those after the move. Of `tags` a job needs one.
    """

    types: tuple[Name, ...] | None = None
    queues: tuple[Name, ...] | None = None
    states: tuple[State, ...] | None = None
    tags: tuple[str, ...] | None = None

    def fits_move(self, type: str, queue: str, after: State) -> bool:
        """Whether the facts of a move are wanted; what the job's tags say comes on top."""
        return _fits(type, self.types) and _fits(queue, self.queues) and _fits(after, self.states)

    def fits_tags(self, tags: Collection[str]) -> bool:
        return self.tags is None or not set(self.tags).isdisjoint(tags)


InFlight = Annotated[int, Meta(ge=1, le=MOST_IN_FLIGHT)]
PerSecond = Annotated[float, Meta(gt=0, le=MOST_PER_SECOND)]


class DeliveryLimits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The load that a sink is given at most: requests at a time, and requests in a second (None: no limit)."""

    in_flight: InFlight = 8
    per_second: PerSecond | None = None


class SigningSecret(Struct, frozen=True, kw_only=True):
    """A secret that signs deliveries until `valid_until`; None: until it is rotated. Its text is never shown."""

    text: str
    created_at: Instant
    valid_until: Instant | None = None

    def __repr__(self) -> str:
        return f"SigningSecret(created_at={self.created_at}, valid_until={self.valid_until})"


class Subscription(Struct, frozen=True, kw_only=True):
    """A subscription as it is stored. `secrets` has the newest first; `reason` says why it is not active.

    `declared`: a table of the settings made it. `request_key` and `fingerprint` are those of the request that did.
    """

    name: Name
    sink: SubscriptionSink
    filter: EventFilter = EventFilter()
    include: EventContent = EventContent.ITEM
    batch: Annotated[int, Meta(ge=1, le=MOST_BATCHED)] = 1
    limits: DeliveryLimits = DeliveryLimits()
    state: SubscriptionState = SubscriptionState.ACTIVE
    reason: str | None = None
    secrets: tuple[SigningSecret, ...]
    created_at: Instant
    changed_at: Instant
    declared: bool = False
    request_key: str | None = None
    fingerprint: str | None = None

    @property
    def relay_name(self) -> str:
        """The name under which shards keep what its relays did. One that is created again gets another.

        So nothing that was meant for the former sink reaches the new one, also from a shard that was away meanwhile.
        """
        return f"{self.name}@{to_millis(self.created_at)}"

    @property
    def events_at_once(self) -> int:
        """How many events a notifier is given at once."""
        return self.batch if isinstance(self.sink, WebhookSink) else max(self.batch, LEAST_PUBLISHED)

    def signing_secrets(self, now: datetime) -> list[str]:
        """The secrets that sign what is sent now, the newest first."""
        return [one.text for one in self.secrets if one.valid_until is None or now < one.valid_until]


def rotate(subscription: Subscription, secret: str, now: datetime) -> Subscription:
    """Sign with a new secret at once, and with the one before it for a day longer. Older ones end now."""
    if isinstance(subscription.sink, SnsSink):
        raise Conflict(f"subscription {subscription.name} has no secret: SNS signs what it sends by itself")
    signing_key(secret)
    newest = SigningSecret(text=secret, created_at=now)
    current, *_ = subscription.secrets
    if secret == current.text:
        raise Invalid("secret: this is the present one; give another, or leave it out for a new one")
    before = replace(current, valid_until=now + SECRET_OVERLAP)
    return replace(subscription, secrets=(newest, before), changed_at=now)


def pause(subscription: Subscription, now: datetime, reason: str | None = None) -> Subscription:
    """Deliver nothing for now. Conflict if it is disabled: pausing it would hide why."""
    if subscription.state is SubscriptionState.DISABLED:
        raise Conflict(f"subscription {subscription.name} is disabled ({subscription.reason}); resume or delete it")
    return replace(subscription, state=SubscriptionState.PAUSED, reason=reason, changed_at=now)


def disable(subscription: Subscription, now: datetime, reason: str) -> Subscription:
    """Deliver nothing until it is resumed: the sink said that it is gone."""
    return replace(subscription, state=SubscriptionState.DISABLED, reason=reason, changed_at=now)


def resume(subscription: Subscription, now: datetime) -> Subscription:
    """Deliver again, from where it stopped."""
    return replace(subscription, state=SubscriptionState.ACTIVE, reason=None, changed_at=now)


def event_filter(
    *,
    types: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
) -> EventFilter:
    """A filter of what a user wrote; Invalid names the field, and what is known."""
    return EventFilter(
        types=_names("types", types), queues=_names("queues", queues), states=_states(states), tags=_given("tags", tags)
    )


def check_name(name: str) -> None:
    """Raise Invalid if no subscription can have this name."""
    if not is_name(name) or len(name) > NAME_LENGTH:
        raise Invalid(f"name: {name!r} cannot name a subscription; use letters, digits and . _ : -")


def check_terms(subscription: Subscription) -> None:
    """Raise Invalid, naming the field, for numbers out of range; as decoding does for stored subscriptions."""
    check_name(subscription.name)
    _check_range("batch", subscription.batch, 1, MOST_BATCHED)
    _check_range("limits.in_flight", subscription.limits.in_flight, 1, MOST_IN_FLIGHT)
    per_second = subscription.limits.per_second
    if per_second is not None and not 0 < per_second <= MOST_PER_SECOND:
        raise Invalid(f"limits.per_second: {per_second:g} is out of range; give more than 0 to {MOST_PER_SECOND:g}")


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise Invalid(f"{field}: {value} is out of range; give {low} to {high}")


def _fits(value: str, wanted: Collection[str] | None) -> bool:
    return wanted is None or value in wanted


def _given(field: str, values: Sequence[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if not values:
        raise Invalid(f"{field}: the list is empty, so no event would fit; name at least one, or leave it out for all")
    if len(values) > MOST_FILTERED:
        raise Invalid(f"{field}: {len(values)} are too many; name at most {MOST_FILTERED}, or leave it out for all")
    return tuple(dict.fromkeys(values))


def _names(field: str, values: Sequence[str] | None) -> tuple[str, ...] | None:
    for value in values or ():
        if not is_name(value) or len(value) > NAME_LENGTH:
            raise Invalid(f"{field}: {value!r} is not a name; names have letters, digits and . _ : -")
    return _given(field, values)


def _states(values: Sequence[str] | None) -> tuple[State, ...] | None:
    known = tuple(State)
    for value in values or ():
        if value not in known:
            raise Invalid(f"states: there is no state {value!r}; {suggest(value, known)}", known=known)
    given = _given("states", values)
    return None if given is None else tuple(map(State, given))
