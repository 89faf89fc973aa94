"""Which routes each function answers. The others are 404 there, so that its role needs no more than they do."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NoReturn

from msgspec.structs import replace

from penstock.api import batches, jobs
from penstock.api.app import OPERATIONS
from penstock.api.operation import Operation
from penstock.api.request import ApiRequest
from penstock.events.cursor import EventCursor
from penstock.events.job_stream import JobEventStream
from penstock.events.live import LiveFeed, LiveStream
from penstock.events.selection import StreamFilter
from penstock.events.stream import EventStream
from penstock.events.streams import Streams
from penstock.model.errors import NotFound, NotServed
from penstock.model.ids import JobId

JOBS: Final = "/v1/jobs"

ADD: Final = (jobs.submit_job, *batches.OPERATIONS)
QUERY: Final = tuple(one for one in OPERATIONS if one.method == "GET" and one.path.startswith(JOBS))
CANCEL: Final = (jobs.cancel_job,)
REST: Final = tuple(one for one in OPERATIONS if one not in (*ADD, *QUERY, *CANCEL))


def only(name: str, served: Collection[Operation]) -> Sequence[Operation]:
    """All operations of the API; those that are not `served` answer 404 and name the function that was asked."""
    return [one if one in served else replace(one, run=_refusal(name, one)) for one in OPERATIONS]


def _refusal(name: str, one: Operation) -> Callable[[ApiRequest], Awaitable[NoReturn]]:
    async def refuse(call: ApiRequest) -> NoReturn:
        raise NotFound(
            f"the function {name} does not serve {one.method} {one.path}: the HTTP API has to route it to another"
        )

    return refuse


class RefusedStreams(Streams):
    """No streams: a function answers once, with the whole of its answer."""

    async def open(self, where: StreamFilter, cursor: EventCursor | None, admit: object) -> EventStream:
        raise _no_stream()

    async def open_job(self, job: JobId, cursor: EventCursor | None, admit: object) -> JobEventStream:
        raise _no_stream()


class RefusedLive(LiveFeed):
    """No stream of digests either; one of them is answered."""

    def open(self, readmit: object) -> LiveStream:
        raise _no_stream()


def _no_stream() -> NotServed:
    return NotServed(
        "Lambda functions serve no streams of events: ask without `Accept: text/event-stream` for pages, "
        "or ask a server (`penstock api`, in a container) for the stream"
    )
