"""What pages and streams of events hold."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.model.clock import Instant
from penstock.model.events import JobEvent
from penstock.model.job import Progress
from penstock.model.lifecycle import State
from penstock.model.wire.jobs import JobItem


class EventItem(JobEvent, frozen=True, kw_only=True):
    """An event. With `items=true` also the job as it was when the event was sent: null if it is no longer kept.

    The job may have moved on since: its own `version` says how far.
    """

    item: JobItem | UnsetType | None = UNSET


class EventPage(Struct, frozen=True):
    """Events, oldest first; pass `cursor` as `after` to go on. `more`: there is more to read now.

    A page may be empty and have `more`: the events up to its cursor are not among those asked for. `missing_shards` did
    not answer: their events come on a later page.
    """

    events: tuple[EventItem, ...]
    cursor: Annotated[str, Meta(min_length=1)]
    more: bool
    missing_shards: tuple[int, ...] = ()


class MissedEvents(Struct, frozen=True, omit_defaults=True):
    """The data of `event: missed`: the stream goes on, but events between are left out of it.

    `slow`: the reader did not keep up; a page or a stream after the cursor `after` has what was left out. `gone`: the
    journal no longer keeps what came before `since`.
    """

    reason: Literal["slow", "gone"]
    after: str
    since: Instant | None = None


class MissingShards(Struct, frozen=True):
    """The data of `event: unavailable`: shards that do not answer. Their events come once they do; none: all answer."""

    shards: tuple[int, ...]


class ProgressItem(Struct, frozen=True):
    """The data of `event: progress`, in the stream of one job."""

    progress: Progress
    attempt: int


class StreamEnd(Struct, frozen=True):
    """The data of `event: end`, the last of a job's stream: the state in which the job has ended."""

    state: State
