"""Job events as CloudEvents 1.0: what webhooks carry, shared by sender and receiver."""

from typing import Final, Generic, TypeVar

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.events import JobEvent

TYPE_PREFIX: Final = "dev.penstock.job."
TOO_LARGE: Final = "too_large"
TEST_TYPE: Final = "dev.penstock.test"
"""Of an event that `penstock subscriptions test` sends."""
CONTENT_TYPE: Final = "application/cloudevents+json"
BATCH_CONTENT_TYPE: Final = "application/cloudevents-batch+json"

JobValue = TypeVar("JobValue")


class CloudEventData(Struct, Generic[JobValue], frozen=True, omit_defaults=True):
    """An event and its job, as it was when the event was sent; without one where facts only are delivered.

    `omitted` says why the job is missing although it is wanted: `too_large` for the sink.
    """

    event: JobEvent
    job: JobValue | None = None
    omitted: str | None = None


class CloudEvent(Struct, Generic[JobValue], frozen=True, kw_only=True):
    """A job event in its envelope. `sequence` sorts the events of a job as text."""

    specversion: str = "1.0"
    id: str
    source: str
    type: str
    subject: str
    time: Instant
    datacontenttype: str = "application/json"
    partitionkey: str
    sequence: str
    data: CloudEventData[JobValue]
