"""Signals through SNS: one topic for a system, and a short-lived queue for each process that listens."""

import asyncio
import json
import logging
import secrets
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from penstock.aws import AwsRefusal, AwsService
from penstock.broker.seam import SignalMessage
from penstock.broker.sqs.queues import is_absent, list_queues, read_pages
from penstock.broker.subscribers import Subscribers
from penstock.model.clock import Clock
from penstock.model.errors import BrokerUnavailable

logger = logging.getLogger("penstock.broker")

SEND_INTERVAL = timedelta(milliseconds=250)
"""The shortest time between two messages of a process: signals in between go together, as each message is paid for."""

MESSAGE_BYTES = 200_000
"""SNS takes 256 KB. Signals whose messages are larger are sent without them, as if they had been missed."""

KEPT_FOR = timedelta(minutes=1)
HIDDEN_FOR = 2 * KEPT_FOR
"""A received signal stays hidden for longer than it is kept, so that it needs no delete."""

RECEIVE_WAIT = timedelta(seconds=20)
RETRY_PAUSE = timedelta(seconds=5)
SEEN_INTERVAL = timedelta(minutes=10)
ORPHANED_AFTER = timedelta(hours=1)
SEEN_TAG = "penstock:seen"


class NoSignals:
    """Sends nothing, and receives what this process sends: others find everything at their next look."""

    def __init__(self) -> None:
        self._subscribers = Subscribers()

    def send(self, sent: SignalMessage) -> None:
        self._subscribers.deliver(sent)

    def listen(self, signals: Collection[str]) -> AsyncIterator[SignalMessage]:
        return self._subscribers.listen(signals)

    async def close(self) -> None:
        self._subscribers.close()


class SnsSignals:
    """Publishes to the topic PREFIX_signals, and receives from it by a queue of its own, removed when it is closed.

    Queues whose process died are removed by the others. `create`: whether the topic may be created.
    """

    def __init__(
        self, sns: AwsService, sqs: AwsService, polls: AwsService, prefix: str, clock: Clock, *, create: bool
    ) -> None:
        self._sns, self._sqs, self._polls = sns, sqs, polls
        self._topic_name = f"{prefix}_signals"
        self._queue_name = f"{prefix}_signals_{secrets.token_hex(8)}"
        self._clock = clock
        self._create = create
        self._topic: str | None = None
        self._queue: str | None = None
        self._subscription: str | None = None
        self._subscribers = Subscribers()
        self._signals: set[str] = set()
        self._unsent: list[SignalMessage] = []
        self._sending: asyncio.Task[None] | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._seen_at = float("-inf")

    def send(self, sent: SignalMessage) -> None:
        """Publish soon, together with other signals of this moment. A hint: errors are only logged."""
        self._unsent.append(sent)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send())

    def listen(self, signals: Collection[str]) -> AsyncIterator[SignalMessage]:
        """Each signal is also given once at the start, as subscribing takes time."""
        local = self._subscribers.listen(signals)
        self._signals |= local.signals
        if self._receiving is None:
            self._receiving = asyncio.ensure_future(self._receive())
        elif self._subscription is not None:
            for signal in sorted(local.signals):
                local.deliver(SignalMessage(signal))
        return local

    async def close(self) -> None:
        """End all subscribers, and remove the queue of this process."""
        self._subscribers.close()
        for task in (self._sending, self._receiving):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        with suppress(BrokerUnavailable, AwsRefusal):
            if self._subscription is not None:
                await self._sns.call("Unsubscribe", SubscriptionArn=self._subscription)
            if self._queue is not None:
                await self._sqs.call("DeleteQueue", QueueUrl=self._queue)

    # -- sending

    async def _send(self) -> None:
        while self._unsent:
            signals, self._unsent = self._unsent, []
            try:
                await self._sns.call("Publish", TopicArn=await self._find_topic(), Message=encode_signals(signals))
            except (BrokerUnavailable, AwsRefusal) as error:
                logger.debug("%d signals were not sent: %s", len(signals), error)
                self._topic = None
            await self._clock.sleep(SEND_INTERVAL)

    async def _find_topic(self) -> str:
        if self._topic is None:
            if self._create:
                self._topic = str((await self._sns.call("CreateTopic", Name=self._topic_name))["TopicArn"])
            else:
                self._topic = await self._look_up_topic()
        return self._topic

    async def _look_up_topic(self) -> str:
        for topic in await read_pages(self._sns, "ListTopics", "Topics"):
            if topic["TopicArn"].endswith(f":{self._topic_name}"):
                return str(topic["TopicArn"])
        raise BrokerUnavailable(f"there is no SNS topic {self._topic_name}; create it, or set broker.create = true")

    # -- receiving

    async def _receive(self) -> None:
        told = False
        while True:
            try:
                queue = await self._subscribe()
                told = False
                while True:
                    await self._receive_once(queue)
                    await self._show_life(queue)
            except (BrokerUnavailable, AwsRefusal) as error:
                logger.log(
                    logging.DEBUG if told else logging.WARNING,
                    "signals of other processes do not arrive (%s); what they say is found a little later", error,
                )  # fmt: skip
                told = True
                if isinstance(error, AwsRefusal):
                    self._queue = self._subscription = None
            await self._clock.sleep(RETRY_PAUSE)

    async def _subscribe(self) -> str:
        """The queue of this process, subscribed to the topic. From here on signals arrive; before, some were missed."""
        if self._queue is None or self._subscription is None:
            topic = await self._find_topic()
            self._queue = await self._create_queue(topic)
            arn = await self._sqs.call("GetQueueAttributes", QueueUrl=self._queue, AttributeNames=["QueueArn"])
            answer = await self._sns.call(
                "Subscribe",
                TopicArn=topic,
                Protocol="sqs",
                Endpoint=arn["Attributes"]["QueueArn"],
                Attributes={"RawMessageDelivery": "true"},
                ReturnSubscriptionArn=True,
            )
            self._subscription = str(answer["SubscriptionArn"])
            self._seen_at = self._clock.monotonic()
            await self._sweep(topic)
        for signal in sorted(self._signals):
            self._subscribers.deliver(SignalMessage(signal))
        return self._queue

    async def _create_queue(self, topic: str) -> str:
        allowed = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": "*",
            "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
        }
        attributes = {
            "MessageRetentionPeriod": str(round(KEPT_FOR.total_seconds())),
            "VisibilityTimeout": str(round(HIDDEN_FOR.total_seconds())),
            "Policy": json.dumps({"Version": "2012-10-17", "Statement": [allowed]}),
        }
        answer = await self._sqs.call(
            "CreateQueue", QueueName=self._queue_name, Attributes=attributes, tags={SEEN_TAG: self._now()}
        )
        return str(answer["QueueUrl"])

    async def _receive_once(self, queue: str) -> None:
        answer = await self._polls.call(
            "ReceiveMessage",
            deadline=2 * RECEIVE_WAIT,
            QueueUrl=queue,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=round(RECEIVE_WAIT.total_seconds()),
        )
        for message in answer.get("Messages", ()):
            for sent in decode_signals(str(message["Body"])):
                self._subscribers.deliver(sent)

    # -- orphans

    async def _show_life(self, queue: str) -> None:
        """Tag the queue with the time, so that no other process takes it for an orphan."""
        if self._clock.monotonic() - self._seen_at >= SEEN_INTERVAL.total_seconds():
            await self._sqs.call("TagQueue", QueueUrl=queue, Tags={SEEN_TAG: self._now()})
            self._seen_at = self._clock.monotonic()
            await self._sweep(await self._find_topic())

    async def _sweep(self, topic: str) -> None:
        """Remove queues whose process was not seen for long, and subscriptions of queues that are gone."""
        subscriptions = await self._read_subscriptions(topic)
        for name, url in await list_queues(self._sqs, f"{self._topic_name}_"):
            if name != self._queue_name and await self._is_orphan(url):
                logger.info("removing the queue %s of a process that is gone", name)
                with suppress(AwsRefusal):
                    await self._sqs.call("DeleteQueue", QueueUrl=url)
        for arn, endpoint in subscriptions:
            if await self._is_gone(endpoint.rpartition(":")[2]):
                with suppress(AwsRefusal):
                    await self._sns.call("Unsubscribe", SubscriptionArn=arn)

    async def _read_subscriptions(self, topic: str) -> list[tuple[str, str]]:
        """Their ARNs and queues."""
        found = await read_pages(self._sns, "ListSubscriptionsByTopic", "Subscriptions", TopicArn=topic)
        pairs = [(str(one["SubscriptionArn"]), str(one["Endpoint"])) for one in found]
        return [(arn, endpoint) for arn, endpoint in pairs if f":{self._topic_name}_" in endpoint]

    async def _is_orphan(self, url: str) -> bool:
        try:
            tags: dict[str, str] = (await self._sqs.call("ListQueueTags", QueueUrl=url)).get("Tags", {})
        except AwsRefusal:
            return False
        seen = tags.get(SEEN_TAG, "")
        return seen.isdecimal() and int(self._now()) - int(seen) > ORPHANED_AFTER.total_seconds()

    async def _is_gone(self, name: str) -> bool:
        try:
            await self._sqs.call("GetQueueUrl", QueueName=name)
        except AwsRefusal as refusal:
            return is_absent(refusal)
        return False

    def _now(self) -> str:
        return str(int(self._clock.now().timestamp()))


def encode_signals(signals: Sequence[SignalMessage]) -> str:
    """One message of many signals, in order; without their messages if these are too large."""
    text = _encode([(one.signal, b64encode(one.message).decode()) for one in signals])
    if len(text) <= MESSAGE_BYTES:
        return text
    return _encode([(signal, "") for signal in dict.fromkeys(one.signal for one in signals)])


def _encode(pairs: Sequence[tuple[str, str]]) -> str:
    return msgspec.json.encode(pairs).decode()


_decode = msgspec.json.Decoder(list[tuple[str, str]]).decode


def decode_signals(body: str) -> list[SignalMessage]:
    """The signals of a message; none if it cannot be read: a hint that was missed."""
    try:
        return [SignalMessage(signal, b64decode(message, validate=True)) for signal, message in _decode(body)]
    except (msgspec.MsgspecError, ValueError) as error:
        logger.debug("a message of signals cannot be read: %s", error)
        return []
