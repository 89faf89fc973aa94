"""Job events as CloudEvents 1.0 in structured JSON, one or a batch. Pure: events in, bytes out."""

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from penstock.model.events import EventId, JobEvent
from penstock.model.wire.cloudevents import TEST_TYPE, TYPE_PREFIX, CloudEvent, CloudEventData
from penstock.model.wire.jobs import JobItem

SentItem: TypeAlias = JobItem | Raw
"""A job item, or the JSON of one."""

_encoder = msgspec.json.Encoder()


class OutgoingEvent(Struct, frozen=True):
    """An event to deliver, with its job; None where facts only are wanted. A test is about no job that exists.

    `omitted` says why the job is missing although it is wanted.
    """

    event: JobEvent
    job: SentItem | None = None
    is_test: bool = False
    omitted: str | None = None


def cloud_event(outgoing: OutgoingEvent, source: str) -> CloudEvent[SentItem]:
    """The event in its envelope. `source` names the Penstock system that it comes from."""
    event = outgoing.event
    return CloudEvent(
        id=event.id,
        source=source,
        type=TEST_TYPE if outgoing.is_test else f"{TYPE_PREFIX}{event.after}",
        subject=event.job,
        time=event.at,
        partitionkey=event.job,
        sequence=f"{event.version:010d}",
        data=CloudEventData(event, outgoing.job, outgoing.omitted),
    )


def encode_event(outgoing: OutgoingEvent, source: str) -> bytes:
    """The body of a message with one event."""
    return _encoder.encode(cloud_event(outgoing, source))


def encode_batch(outgoing: Sequence[OutgoingEvent], source: str) -> bytes:
    """The body of a message with many events, in order."""
    return _encoder.encode([cloud_event(one, source) for one in outgoing])


def batch_id(events: Sequence[EventId]) -> str:
    """The id of a message with these events: the same when the same events are sent again."""
    return f"bat_{hashlib.sha256(' '.join(events).encode()).hexdigest()[:32]}"
