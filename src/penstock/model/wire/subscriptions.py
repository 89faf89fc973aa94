"""Subscriptions, their delivery logs and replays on the wire. Only answers about a new secret have one."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import asdict, replace

from penstock.model.clock import Instant, check_instants
from penstock.model.errors import Invalid
from penstock.model.events import EventId
from penstock.model.ids import ShardId
from penstock.model.journal import DeliveryRecord
from penstock.model.lifecycle import State
from penstock.model.names import NAME_PATTERN
from penstock.model.subscriptions import (
    MOST_BATCHED,
    MOST_FILTERED,
    NAME_LENGTH,
    DeliveryLimits,
    EventContent,
    EventFilter,
    InFlight,
    PerSecond,
    Subscription,
    SubscriptionSink,
    SubscriptionState,
    event_filter,
)

# What `event_filter` checks, and tells better, is in the description only.
_NAME_SCHEMA = {"pattern": f"^{NAME_PATTERN}$", "maxLength": NAME_LENGTH, "minLength": 1}
_LIST_SCHEMA = {"minItems": 1, "maxItems": MOST_FILTERED}
NameText = Annotated[str, Meta(extra_json_schema=_NAME_SCHEMA)]
NameTexts = Annotated[tuple[NameText, ...], Meta(extra_json_schema=_LIST_SCHEMA)]
StateText = Annotated[str, Meta(extra_json_schema={"enum": list(State)})]
TagText = Annotated[str, Meta(max_length=128)]
StateTexts = Annotated[tuple[StateText, ...], Meta(extra_json_schema=_LIST_SCHEMA)]
TagTexts = Annotated[tuple[TagText, ...], Meta(extra_json_schema=_LIST_SCHEMA)]
Batch = Annotated[int, Meta(ge=1, le=MOST_BATCHED)]
SecretText = Annotated[str, Meta(max_length=128, description="`whsec_…`; made by the server unless it is given.")]
EventIdText = Annotated[str, Meta(max_length=64, description="An event, by its id.")]


class FilterRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which events are wanted: those that fit every list that is given. A job needs one of the tags."""

    types: NameTexts | None = None
    queues: NameTexts | None = None
    states: StateTexts | None = None
    tags: TagTexts | None = None

    def checked(self) -> EventFilter:
        """Invalid names the list that is empty or has a wrong value."""
        return event_filter(types=self.types, queues=self.queues, states=self.states, tags=self.tags)


class SubscriptionRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A subscription to make. `include`: whether the job item is delivered with the facts of an event."""

    name: NameText
    sink: SubscriptionSink
    filter: FilterRequest = FilterRequest()
    include: EventContent = EventContent.ITEM
    batch: Batch = 1
    limits: DeliveryLimits = DeliveryLimits()
    secret: SecretText | None = None


class FilterChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lists to replace; null lets through all. The others stay."""

    types: NameTexts | UnsetType | None = UNSET
    queues: NameTexts | UnsetType | None = UNSET
    states: StateTexts | UnsetType | None = UNSET
    tags: TagTexts | UnsetType | None = UNSET

    def laid_over(self, before: EventFilter) -> EventFilter:
        """Invalid names the list that is empty or has a wrong value."""
        return event_filter(**asdict(before) | said(self))


class LimitsChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits to replace; null of `per_second` is none. The other stays."""

    in_flight: InFlight | UnsetType = UNSET
    per_second: PerSecond | UnsetType | None = UNSET


class SubscriptionChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to change; the rest stays."""

    sink: SubscriptionSink | UnsetType = UNSET
    filter: FilterChange | UnsetType = UNSET
    include: EventContent | UnsetType = UNSET
    batch: Batch | UnsetType = UNSET
    limits: LimitsChange | UnsetType = UNSET

    def laid_over(self, before: Subscription, now: datetime) -> Subscription:
        """The subscription, changed; Invalid names what of the filter is wrong."""
        changes = said(self) | {"changed_at": now}
        if self.filter is not UNSET:
            changes["filter"] = self.filter.laid_over(before.filter)
        if self.limits is not UNSET:
            changes["limits"] = replace(before.limits, **said(self.limits))
        return replace(before, **changes)


def said(change: Struct) -> dict[str, Any]:
    """The fields of a change that are not UNSET."""
    fields = {name: getattr(change, name) for name in change.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not UNSET}


class RotateSecretRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The secret to sign with from now on; made by the server unless it is given."""

    secret: SecretText | None = None


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What to deliver again: one event, or those of a span of time (`to`: now unless told), or all dead ones."""

    event: EventIdText | None = None
    since: Instant | None = field(name="from", default=None)
    until: Instant | None = field(name="to", default=None)
    dead: bool = False

    def __post_init__(self) -> None:
        check_instants(self, "since", "until")
        if (self.event is not None) + (self.since is not None) + self.dead != 1:
            raise Invalid("replay: name one of `event`, `from` (with `to`) and `dead`")
        if self.until is not None and (self.since is None or self.until <= self.since):
            raise Invalid("to: give it with an earlier `from`")


class ReplayAnswer(Struct, frozen=True):
    """How many events will be delivered again. `more`: so many were dead that another call is needed for the rest."""

    events: int
    more: bool = False


class SubscriptionSource(StrEnum):
    """`settings`: a table [subscriptions.NAME]. `removed`: such a table, which this server's settings lack by now."""

    API = "api"
    SETTINGS = "settings"
    REMOVED = "removed"


class SecretItem(Struct, frozen=True, kw_only=True):
    """When a secret was made and until when it signs; nothing of the secret itself."""

    created_at: Instant
    valid_until: Instant | None = None


class SubscriptionItem(Struct, frozen=True, kw_only=True):
    """A subscription as lists show it. `reason` says why it is not active."""

    name: str
    state: SubscriptionState
    reason: str | None
    sink: SubscriptionSink
    filter: EventFilter
    include: EventContent
    batch: int
    limits: DeliveryLimits
    secrets: tuple[SecretItem, ...]
    source: SubscriptionSource
    created_at: Instant
    changed_at: Instant


class MadeSubscription(SubscriptionItem, frozen=True, kw_only=True):
    """A subscription with a new secret, which is shown here and never again; None in the answer to a repetition."""

    secret: str | None


class CircuitState(StrEnum):
    """`open`: the sink fails, and nothing but a probe now and then is sent to it."""

    CLOSED = "closed"
    OPEN = "open"


class RelayItem(Struct, frozen=True, kw_only=True):
    """How the deliveries from one shard stand. `lag` is of what the relay has not come to, `waiting` of what failed.

    `lag_entries` counts entries of the journal: each has the events of one or more jobs.
    """

    shard: ShardId
    circuit: CircuitState
    failures: int
    retry_at: Instant | None
    lag_entries: int
    lag_seconds: float
    waiting: int
    dead: int
    delivered: int
    failed: int


class SubscriptionReport(SubscriptionItem, frozen=True, kw_only=True):
    """A subscription and its deliveries. Shards that gave no answer are named, not counted."""

    relays: tuple[RelayItem, ...]
    missing_shards: tuple[ShardId, ...] = ()


class SubscriptionList(Struct, frozen=True):
    subscriptions: tuple[SubscriptionItem, ...]


class TestOutcome(Struct, frozen=True, kw_only=True):
    """What came of a test event."""

    __test__ = False

    event: EventId
    delivered: bool
    status: int | None
    detail: str | None
    took_seconds: float


class DeliveryItem(Struct, frozen=True, kw_only=True):
    """A line of the delivery log: a failure by itself, or successes in a row, from event `first` to `last`."""

    shard: ShardId
    at: Instant
    delivered: bool
    first: str
    last: str
    events: int
    attempt: int
    status: int | None
    detail: str | None
    took_seconds: float


class DeliveryPage(Struct, frozen=True):
    """Newest first. `before`: what to ask for to get the next page; None on the last one."""

    deliveries: tuple[DeliveryItem, ...]
    before: Instant | None = None
    missing_shards: tuple[ShardId, ...] = ()


def delivery_item(shard: ShardId, record: DeliveryRecord) -> DeliveryItem:
    same = {name: getattr(record, name) for name in record.__struct_fields__ if name != "took"}
    return DeliveryItem(shard=shard, took_seconds=record.took.total_seconds(), **same)


def subscription_fields(subscription: Subscription, source: SubscriptionSource) -> dict[str, Any]:
    """The fields of a SubscriptionItem."""
    same = ("name", "state", "reason", "sink", "filter", "include", "batch", "limits", "created_at", "changed_at")
    secrets = tuple(SecretItem(created_at=one.created_at, valid_until=one.valid_until) for one in subscription.secrets)
    return {name: getattr(subscription, name) for name in same} | {"secrets": secrets, "source": source}
