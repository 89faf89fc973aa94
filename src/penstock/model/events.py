"""Job events as they are delivered and streamed: the facts of one change of one job. Pure values."""

import re
from typing import Annotated, NewType

import msgspec
from msgspec import Meta, Struct

from penstock.model.clock import Instant
from penstock.model.declarations import plain_type
from penstock.model.errors import Invalid
from penstock.model.ids import JobId, from_bytes
from penstock.model.journal import Entry, EntryEvent
from penstock.model.lifecycle import State

EventId = NewType("EventId", str)

_EVENT_ID = re.compile(r"evt_([0-9a-f]{32})_([1-9][0-9]{0,9})")


class JobEvent(Struct, frozen=True, kw_only=True, gc=False):
    """What one move did to one job. `version` numbers the changes of a job 1, 2, 3 … without a gap.

    `id` follows from job and version, so a resend, a replay and a stream all name an event alike. `before` is None for
    a new job, and equals `after` where the job was marked for cancelling. `move` is text: readers of another version
    of Penstock must be able to read moves that they do not know.
    """

    id: EventId
    job: JobId
    version: Annotated[int, Meta(ge=1)]
    type: str
    queue: str
    move: str
    before: State | None
    after: State
    attempt: int
    reason: str | None
    at: Instant


def event_id(job: JobId, version: int) -> EventId:
    """The id of a job's event. It has no dot: signatures put dots between their parts."""
    return EventId(f"evt_{job.replace('-', '')}_{version}")


def parse_event_id(text: str) -> tuple[JobId, int]:
    """The job and the version of an event id; Invalid if it is not one."""
    found = _EVENT_ID.fullmatch(text)
    if found is None:
        raise Invalid(f"{text!r} is not an event id: expected evt_<job id without dashes>_<version>")
    return from_bytes(bytes.fromhex(found[1])), int(found[2])


def job_event(entry: Entry, one: EntryEvent) -> JobEvent:
    """The event of one job of an entry. Its type is the declared one, also while the job waits under an unfit name."""
    return JobEvent(
        id=event_id(one.job, one.version),
        job=one.job,
        version=one.version,
        type=plain_type(entry.type),
        queue=entry.queue,
        move=entry.move,
        before=entry.before,
        after=entry.after,
        attempt=one.attempt,
        reason=one.reason,
        at=entry.at,
    )


_decoder = msgspec.json.Decoder(JobEvent)


def pack_event(event: JobEvent) -> bytes:
    """An event as it is parked."""
    return msgspec.json.encode(event)


def unpack_event(packed: bytes) -> JobEvent:
    return _decoder.decode(packed)
