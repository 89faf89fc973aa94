"""SNS: the notifier that publishes events to topics of Amazon SNS, one message each, up to ten in a call.

A message is a CloudEvent in JSON, with type, queue, state and version as attributes that subscribers can filter by. A
FIFO topic keeps the order of each job's events; on a standard topic `version` tells it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from penstock.aws import AwsRefusal, AwsService
from penstock.events.cloudevents import OutgoingEvent, encode_event
from penstock.events.notifier import (
    Delivered,
    Delivery,
    Gone,
    PartlyDelivered,
    Rejected,
    Undelivered,
    Unreachable,
)
from penstock.model.clock import Clock, seconds
from penstock.model.errors import Invalid, Unavailable, UnresolvedHost
from penstock.model.events import EventId
from penstock.model.extras import require
from penstock.model.ids import JobId
from penstock.model.subscriptions import SnsSink, Subscription, SubscriptionSink, check_topic
from penstock.model.text import readable
from penstock.model.wire.cloudevents import TOO_LARGE

MOST_ENTRIES: Final = 10
MOST_BYTES: Final = 256 * 1024
"""Of one message with its attributes, and of all messages of a call."""
DEADLINE: Final = timedelta(seconds=10)
MOST_KEPT: Final = 1024
OK: Final = 200
TOO_MANY_REQUESTS: Final = 429
_MISSING: Final = frozenset({"NotFound", "NotFoundException", "TopicNotFound", "ResourceNotFoundException"})


class SnsMessage(Struct, frozen=True):
    """One event as an entry of PublishBatch, and the bytes that SNS counts of it."""

    event: EventId
    job: JobId
    entry: Mapping[str, Any]
    size: int


Fates: TypeAlias = Mapping[EventId, Undelivered | None]
"""What came of each message; None where the topic has it."""


class SnsNotifier:
    """Keeps the Notifier protocol over SNS. Each event is judged by itself; clients are kept, one per region."""

    def __init__(self, source: str, clock: Clock, *, deadline: timedelta = DEADLINE) -> None:
        self._source = source
        self._clock = clock
        self._deadline = deadline
        self._services: dict[str, AwsService] = {}
        self._opening = asyncio.Lock()
        self._closed = asyncio.Event()

    async def check(self, sink: SubscriptionSink) -> None:
        """Also asks for the topic, where the role may; a role that may only publish is enough."""
        topic = _topic_of(sink)
        check_topic(topic.topic)
        service = await self._find_service(topic.region)
        try:
            await service.call("GetTopicAttributes", TopicArn=topic.topic)
        except AwsRefusal as refused:
            raise Invalid(f"sink: there is no topic {topic.topic}: create it first ({refused.code})") from None
        except Unavailable as error:
            if not error.details.get("denied"):
                raise UnresolvedHost(f"sink: {topic.topic} cannot be looked up now: {error.message}") from None

    async def deliver(self, subscription: Subscription, events: Sequence[OutgoingEvent]) -> Delivery:
        started = self._clock.monotonic()
        sink = _topic_of(subscription.sink)
        messages = [sns_message(one, self._source, is_fifo=sink.is_fifo) for one in events]
        done, failed = set[EventId](), dict[EventId, Undelivered]()
        for call in _calls(messages):
            blocked = {one.job for one in messages if one.event in failed}
            sent = [one for one in call if one.job not in blocked]
            outcome = await self._publish(sink, sent) if sent else {}
            if isinstance(outcome, Gone):
                return replace(outcome, took=self._took(started))
            failed.update({id: one for id, one in outcome.items() if one is not None})
            done.update(id for id, one in outcome.items() if one is None)
        return conclude(frozenset(done), failed, self._took(started))

    async def close(self) -> None:
        self._closed.set()
        services, self._services = self._services, {}
        for service in services.values():
            await service.close()

    def _took(self, started: float) -> timedelta:
        return seconds(self._clock.monotonic() - started)

    async def _publish(self, sink: SnsSink, messages: Sequence[SnsMessage]) -> Fates | Gone:
        """What came of each message; Gone if there is no such topic."""
        entries = [{"Id": str(number), **one.entry} for number, one in enumerate(messages)]
        fate: Undelivered
        try:
            answer = await self._call(sink, entries)
        except AwsRefusal as refused:
            detail = readable(str(refused))[:MOST_KEPT]
            if refused.code in _MISSING:
                return Gone(f"there is no topic {sink.topic} ({detail})", timedelta(0))
            fate = Rejected(400, detail, timedelta(0))
        except Unavailable as error:
            fate = outcome_of(error)
        except Invalid as error:
            # Of this process, not of the sink: another one, with the library, may deliver.
            fate = Unreachable(error.message, timedelta(0))
        else:
            refusals = {str(one.get("Id")): _refusal(one) for one in answer.get("Failed", ())}
            return {one.event: refusals.get(str(number)) for number, one in enumerate(messages)}
        return {one.event: fate for one in messages}

    async def _call(self, sink: SnsSink, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The answer; Unavailable also when the notifier is closed meanwhile."""
        service = await self._find_service(sink.region)
        publishing = asyncio.ensure_future(
            service.call("PublishBatch", TopicArn=sink.topic, PublishBatchRequestEntries=entries)
        )
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((publishing, closing), return_when=asyncio.FIRST_COMPLETED)
            if not publishing.done():
                raise Unavailable("the process stops; the topic may have the events")
            return publishing.result()
        finally:
            closing.cancel()
            publishing.cancel()

    async def _find_service(self, region: str) -> AwsService:
        async with self._opening:
            if region not in self._services:
                require("aws")
                self._services[region] = await AwsService.open(
                    "sns", error=Unavailable, deadline=self._deadline, region=region
                )
            return self._services[region]


def sns_message(outgoing: OutgoingEvent, source: str, *, is_fifo: bool) -> SnsMessage:
    """The message of an event. A job that makes it too large is left out, and the message says so."""
    event = outgoing.event
    attributes = {
        "type": _attribute(event.type),
        "queue": _attribute(event.queue),
        "state": _attribute(event.after),
        "version": _attribute(str(event.version), "Number"),
    }
    size = sum(len(name) + sum(map(len, value.values())) for name, value in attributes.items())
    body = encode_event(outgoing, source)
    if size + len(body) > MOST_BYTES and outgoing.job is not None:
        body = encode_event(replace(outgoing, job=None, omitted=TOO_LARGE), source)
    entry: dict[str, Any] = {"Message": body.decode(), "MessageAttributes": attributes}
    if is_fifo:
        entry |= {"MessageGroupId": event.job, "MessageDeduplicationId": event.id}
    return SnsMessage(event.id, event.job, entry, size + len(body))


def conclude(done: frozenset[EventId], failed: Mapping[EventId, Undelivered], took: timedelta) -> Delivery:
    """One outcome for all events where they have the same; else what came of each."""
    if not failed:
        return Delivered(OK, took)
    if done:
        return PartlyDelivered(done, failed, OK, took)
    return replace(next(iter(failed.values())), took=took)


def outcome_of(error: Unavailable) -> Undelivered:
    """What a call means that was not taken: a topic that throttles has answered."""
    if error.details.get("throttled"):
        return Rejected(TOO_MANY_REQUESTS, error.message, timedelta(0))
    return Unreachable(error.message, timedelta(0))


def _calls(messages: Sequence[SnsMessage]) -> Iterator[list[SnsMessage]]:
    """The messages in order, in calls that SNS takes, each with one event of a job: the next waits for its answer."""
    call, jobs, size = list[SnsMessage](), set[JobId](), 0
    for one in messages:
        if call and (len(call) == MOST_ENTRIES or one.job in jobs or size + one.size > MOST_BYTES):
            yield call
            call, jobs, size = [], set(), 0
        call.append(one)
        jobs.add(one.job)
        size += one.size
    if call:
        yield call


def _refusal(failed: Mapping[str, Any]) -> Rejected:
    detail = readable(f"{failed.get('Code', '')}: {failed.get('Message', '')}")[:MOST_KEPT]
    return Rejected(400 if failed.get("SenderFault") else 500, detail, timedelta(0))


def _attribute(value: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


def _topic_of(sink: SubscriptionSink) -> SnsSink:
    if not isinstance(sink, SnsSink):
        raise TypeError(f"an SNS notifier publishes to topics, not to {sink.address}")
    return sink
