"""Events of jobs: pages for clients that poll, and streams for clients that stay."""

import re
from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.operation import Answer, Header, operation
from penstock.api.request import JSON, AnyReply, ApiRequest, InstantText, json_reply, read_instant
from penstock.api.stream_reply import ACCEPT, EVENT_STREAM, StreamReply, wants_stream
from penstock.engine.history import require_events
from penstock.events.cursor import CURSOR_MAX_LENGTH, CURSOR_PATTERN, EventCursor, parse_cursor
from penstock.events.past import read_page
from penstock.events.selection import StreamFilter
from penstock.model.clock import EARLIEST, seconds
from penstock.model.errors import Invalid
from penstock.model.lifecycle import State
from penstock.model.names import CONTROL, NAME_PATTERN
from penstock.model.wire.events import EventPage

LIST_ITEMS = 100

_STATES = "|".join(State)


MOST_LISTED_LENGTH = 2_000
"""Characters of one list in a query: all of them, percent-encoded, fit into the head of a request."""


def _listed(pattern: str, about: str) -> Meta:
    """Text that is checked here, item by item, and described as a pattern."""
    pattern = rf"^{pattern}(,{pattern}){{0,99}}$"
    return Meta(description=about, max_length=MOST_LISTED_LENGTH, extra_json_schema={"pattern": pattern})


Names = Annotated[str, _listed(NAME_PATTERN.replace("*", "{0,127}"), "Names, separated by commas.")]
States = Annotated[str, _listed(f"({_STATES})", "States, separated by commas.")]
TagList = Annotated[
    str, _listed(f"[^,{CONTROL}]{{1,128}}", "Tags, separated by commas; a tag with a comma cannot be named.")
]
CursorText = Annotated[str, Meta(extra_json_schema={"pattern": f"^{CURSOR_PATTERN}$", "maxLength": CURSOR_MAX_LENGTH})]

LAST_EVENT_ID = Header(
    "Last-Event-ID", CursorText, "The last id of a stream, to go on after it. Counts before `after`."
)


class EventQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events: those of jobs that are in all of the lists, after a cursor or an instant. `after` counts first.

    Without either, a page begins with the oldest event that is kept, and a stream now.
    """

    # Not None: in a query the word "null" would stand for it, and it may be a name.
    type: Names | UnsetType = UNSET
    queue: Names | UnsetType = UNSET
    state: States | UnsetType = UNSET
    tag: TagList | UnsetType = UNSET
    items: bool = False
    after: CursorText | UnsetType = UNSET
    since: InstantText | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50


class JobEventQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Events of a job after a cursor; from its first one on without."""

    after: CursorText | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 50


@operation(
    "GET /v1/events",
    {200: Answer("Events, oldest first; or a stream of them that goes on.", EventPage, (JSON, EVENT_STREAM))},
    query=EventQuery,
    headers=(ACCEPT, LAST_EVENT_ID),
    refusals=(409, 410),
)
async def list_events(call: ApiRequest) -> AnyReply:
    """Read what changed the states of jobs, in order for each job: a page, or a stream."""
    query = call.query(EventQuery)
    where, cursor = _filter(query), _cursor(call, query.after)
    since = None if query.since is UNSET else read_instant("since", query.since)
    if cursor is None and since is not None:
        cursor = EventCursor(since)
    require_events(call.engine.settings.events)
    if wants_stream(call):
        stream = await call.streams.open(where, cursor, call.readmit)
        return StreamReply(call, stream, partial(call.streams.close, stream))
    limit = min(query.limit, call.engine.settings.limits.page_jobs)
    return json_reply(200, await read_page(call.engine, where, cursor or EventCursor(EARLIEST), limit))


@operation(
    "GET /v1/jobs/{job}/events",
    {200: Answer("The job's events, oldest first; or a stream of them.", EventPage, (JSON, EVENT_STREAM))},
    query=JobEventQuery,
    headers=(ACCEPT, LAST_EVENT_ID),
    refusals=(404, 409, 410),
)
async def list_job_events(call: ApiRequest) -> AnyReply:
    """Read what happened to one job. A stream also has its progress and log lines, and ends with the job."""
    job, query = call.job(), call.query(JobEventQuery)
    cursor = _cursor(call, query.after)
    require_events(call.engine.settings.events)
    if wants_stream(call):
        job_stream = await call.streams.open_job(job, cursor, call.readmit)
        return StreamReply(call, job_stream, partial(call.streams.close, job_stream))
    found = await call.engine.jobs.get(job)
    begin = cursor or EventCursor(found.created_at - seconds(1.0))
    limit = min(query.limit, call.engine.settings.limits.page_jobs)
    return json_reply(200, await read_page(call.engine, StreamFilter(job=job), begin, limit))


def _cursor(call: ApiRequest, after: str | UnsetType) -> EventCursor | None:
    asked = None if after is UNSET else parse_cursor(after, "query: after")
    last = call.header(b"last-event-id")
    return asked if last is None else parse_cursor(last, "Last-Event-ID")


def _filter(query: EventQuery) -> StreamFilter:
    return StreamFilter(
        types=_read_list("type", query.type, _NAME),
        queues=_read_list("queue", query.queue, _NAME),
        states=_read_states(query.state),
        tags=_read_list("tag", query.tag, _TAG),
        items=query.items,
    )


_NAME = re.compile(NAME_PATTERN)
_TAG = re.compile(f"[^{CONTROL}]+")


def _read_list(name: str, text: str | UnsetType, pattern: "re.Pattern[str]") -> frozenset[str] | None:
    """The items of a list; Invalid names the parameter, and the item that is none."""
    if text is UNSET:
        return None
    found = text.split(",")
    if not text:
        raise Invalid(f"query: {name}: the list is empty; name at least one, or leave it out for all")
    if len(found) > LIST_ITEMS:
        raise Invalid(f"query: {name}: {len(found)} are too many; at most {LIST_ITEMS}")
    for one in found:
        if len(one) > 128 or pattern.fullmatch(one) is None:
            raise Invalid(f"query: {name}: {one[:140]!r} cannot be one; separate them by single commas")
    return frozenset(found)


def _read_states(text: str | UnsetType) -> frozenset[State] | None:
    found = _read_list("state", text, _NAME)
    if found is None:
        return None
    known = tuple(map(str, State))
    if unknown := sorted(found - set(known)):
        raise Invalid(f"query: state: there is no state {unknown[0]!r}; known: {', '.join(known)}", known=known)
    return frozenset(map(State, found))


OPERATIONS = (list_events, list_job_events)
