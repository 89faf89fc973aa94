"""Streams of events as a client reads them: the calls, and what each block of a stream means."""

import random
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.client.calls import Call, StreamBlock, path_of, query_of
from penstock.model.clock import Clock
from penstock.model.errors import JournalGone, Unavailable
from penstock.model.job import LogLine
from penstock.model.retry import Retry
from penstock.model.wire.events import EventItem, EventPage, MissedEvents, ProgressItem

JobUpdate: TypeAlias = EventItem | ProgressItem | LogLine
"""What the stream of one job holds: a change of its state, its progress, or a line that it wrote."""

Update = TypeVar("Update", bound=JobUpdate)

HEARTBEAT = timedelta(seconds=15)
"""How long a stream may be silent; the deadline for an answer is added."""

RECENT_EVENTS = 4_096
"""So many events are remembered, to leave out those that come again after a reconnect."""

BACKOFF = Retry(delay_seconds=0.2, cap_seconds=5.0)

_MISSED = msgspec.json.Decoder(MissedEvents).decode
_PAGE = msgspec.json.Decoder(EventPage).decode
_EVENT = msgspec.json.Decoder(EventItem).decode
_PROGRESS = msgspec.json.Decoder(ProgressItem).decode
_LINE = msgspec.json.Decoder(LogLine).decode


class EventOptions(TypedDict, total=False):
    """Which events. Names and tags in a list: any of them; `items`: each event with its job."""

    types: Iterable[str] | None
    queues: Iterable[str] | None
    states: Iterable[str] | None
    tags: Iterable[str] | None
    items: bool
    since: datetime | None


def events(options: EventOptions, after: str | None = None, limit: int | None = None) -> Call[EventPage]:
    """A page of events, or with `StreamPosition` the stream of them."""
    since = options.get("since")
    query = query_of(
        type=_listed(options.get("types")),
        queue=_listed(options.get("queues")),
        state=_listed(options.get("states")),
        tag=_listed(options.get("tags")),
        items="true" if options.get("items") else None,
        since=None if since is None else since.isoformat(),
        after=after,
        limit=limit,
    )
    return Call("GET", "/v1/events", _PAGE, query=query, wait=HEARTBEAT)


def job_events(job: str) -> Call[Any]:
    """The stream of one job."""
    return Call("GET", path_of("jobs", job, "events"), bytes, wait=HEARTBEAT)


def _listed(names: Iterable[str] | None) -> str | None:
    return None if names is None else ",".join((names,) if isinstance(names, str) else map(str, names))


class StreamPosition(Generic[Update]):
    """Where a client is in a stream, so that it can connect again without gap or double.

    Until the first answer, an unavailable server is an error after `patience`; from then on the client tries for ever.
    """

    def __init__(self, call: Call[Any], clock: Clock, rng: random.Random, patience: timedelta) -> None:
        self._call = call
        self._clock = clock
        self._rng = rng
        self._give_up_at: float | None = clock.monotonic() + patience.total_seconds()
        self._last_id: str | None = None
        self._recent: set[str] = set()
        self._order: deque[str] = deque()
        self._lines = self._lines_again = 0
        self._failures = 0
        self._wait = timedelta(0)
        self.is_cut = False
        """Whether the client must connect again to go on."""
        self.has_ended = False

    def connect(self) -> Call[Any]:
        """The call that goes on after what was read."""
        self.is_cut = False
        self._lines_again, self._lines = self._lines, 0
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self._last_id} if self._last_id else {})
        return replace(self._call, headers=headers)

    def read(self, block: StreamBlock) -> list[Update]:
        """The updates in a block that were not read before. JournalGone if some are no longer kept."""
        self._failures, self._give_up_at = 0, None
        if block.id and block.id != self._last_id:
            self._last_id, self._lines, self._lines_again = block.id, 0, 0
        return self._updates(block) if block.data else []

    def _updates(self, block: StreamBlock) -> list[Any]:
        match block.event:
            case "message":
                return self._read_event(_EVENT(block.data))
            case "progress":
                return [_PROGRESS(block.data)]
            case "log":
                return self._read_line(_LINE(block.data))
            case "missed":
                self._read_missed(_MISSED(block.data))
            case "end":
                self.has_ended = True
        return []

    def _read_event(self, event: EventItem) -> list[EventItem]:
        if event.id in self._recent:
            return []
        self._recent.add(event.id)
        self._order.append(event.id)
        if len(self._order) > RECENT_EVENTS:
            self._recent.discard(self._order.popleft())
        self.has_ended = event.after.terminal and self._is_of_one_job
        return [event]

    @property
    def _is_of_one_job(self) -> bool:
        return self._call.path != "/v1/events"

    def _read_line(self, line: LogLine) -> list[LogLine]:
        """Lines since the last id come again, in the same order."""
        self._lines += 1
        return [line] if self._lines > self._lines_again else []

    def _read_missed(self, missed: MissedEvents) -> None:
        """Ask again for what this client was too slow for."""
        if missed.reason == "gone":
            raise JournalGone(
                f"some events were missed: none before {missed.since or 'now'} is kept (retention.events_seconds)",
                since=missed.since,
            )
        self._last_id, self.is_cut = missed.after, True

    def note_failure(self, error: Unavailable) -> None:
        """Count a connection that failed; raises the error if the server was never reached and patience is over."""
        self._failures += 1
        self._wait = BACKOFF.wait_after(self._failures, self._rng)
        after = error.details.get("retry_after", 0)
        if isinstance(after, int):
            self._wait = max(self._wait, timedelta(seconds=after))
        if self._give_up_at is not None and self._clock.monotonic() + self._wait.total_seconds() > self._give_up_at:
            raise error

    def pause(self) -> timedelta:
        """How long to wait before connecting again: not at all to fetch what was missed."""
        if self.is_cut:
            return timedelta(0)
        wait, self._wait = self._wait, timedelta(0)
        return wait or BACKOFF.wait_after(1, self._rng)
