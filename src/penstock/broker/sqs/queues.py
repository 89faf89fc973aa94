"""The SQS queues of a system: found, created, listed and counted."""

import asyncio
import logging
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from msgspec import Struct

from penstock.aws import AwsRefusal, AwsService
from penstock.broker.sqs import wire
from penstock.model.clock import Clock
from penstock.model.errors import BrokerUnavailable
from penstock.model.job import BacklogKey
from penstock.model.workers import WorkRequest

logger = logging.getLogger("penstock.broker")

LIST_INTERVAL = timedelta(seconds=30)
"""How soon a queue is seen that another process created for jobs outside the queue of their type."""

DEPTHS_AT_ONCE = 10
RETENTION_MAX = timedelta(days=14)
RETENTION_MIN = timedelta(minutes=1)
QUEUE_TAG, TYPE_TAG = "penstock:queue", "penstock:type"

_ABSENT = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})


class SqsQueue(Struct, frozen=True):
    """The queue of one backlog."""

    key: BacklogKey
    name: str
    url: str


class QueueTerms(Struct, frozen=True, kw_only=True):
    """How queues are made, and how long what is known of them is believed."""

    create: bool = True
    visibility: timedelta = timedelta(seconds=30)
    ticket_for: timedelta = timedelta(minutes=15)
    depths_age: timedelta = timedelta(seconds=2)
    list_interval: timedelta = LIST_INTERVAL

    @property
    def attributes(self) -> dict[str, str]:
        """Of a new queue. A ticket is posted again after `ticket_for`: messages older than that would be doubles."""
        kept = min(max(self.ticket_for + RETENTION_MIN, RETENTION_MIN), RETENTION_MAX)
        return {
            "VisibilityTimeout": str(round(self.visibility.total_seconds())),
            "MessageRetentionPeriod": str(round(kept.total_seconds())),
        }


def is_absent(refusal: AwsRefusal) -> bool:
    """Whether the queue does not exist (any more)."""
    return refusal.code in _ABSENT


def unavailable(action: str, name: str, refusal: AwsRefusal) -> BrokerUnavailable:
    return BrokerUnavailable(f"SQS refused {action} for the queue {name}: {refusal}")


class SqsQueues:
    """The queues whose names begin with `prefix`. One is created when it is first published to, or expected."""

    def __init__(self, service: AwsService, prefix: str, terms: QueueTerms, clock: Clock) -> None:
        self._service = service
        self._prefix = prefix
        self._terms = terms
        self._clock = clock
        self._known: dict[BacklogKey, SqsQueue] = {}
        self._names: dict[str, BacklogKey | None] = {}
        self._missing: set[BacklogKey] = set()
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()
        self._opening: dict[BacklogKey, asyncio.Lock] = {}
        self._depths: dict[BacklogKey, tuple[int, float]] = {}

    @property
    def list_interval(self) -> timedelta:
        return self._terms.list_interval

    def known(self, wanted: WorkRequest) -> list[SqsQueue]:
        """The queues with tickets that are wanted, as far as they are known."""
        return [queue for key, queue in self._known.items() if wanted.wants(*key)]

    async def find(self, wanted: WorkRequest) -> list[SqsQueue]:
        """The queues with tickets that are wanted. Those that are expected are created if they are missing."""
        await self.refresh()
        for key in wanted.expected:
            if key not in self._known and key not in self._missing and wanted.wants(*key):
                await self._open_expected(key)
        return self.known(wanted)

    async def refresh(self) -> None:
        """List the queues, unless that was done a moment ago."""
        async with self._listing:
            if self._clock.monotonic() - self._listed_at < self._terms.list_interval.total_seconds():
                return
            for name, url in await list_queues(self._service, f"{self._prefix}-"):
                await self._note(name, url)
            self._missing.clear()
            self._listed_at = self._clock.monotonic()

    async def open(self, key: BacklogKey) -> SqsQueue:
        """The queue of a backlog, created if it is missing and that is allowed; else BrokerUnavailable."""
        if (known := self._known.get(key)) is not None:
            return known
        async with self._opening.setdefault(key, asyncio.Lock()):
            if (known := self._known.get(key)) is not None:
                return known
            found = await self._find_one(key) or await self._create(key)
            self._opening.pop(key, None)
            return found

    def forget(self, queue: SqsQueue) -> None:
        """Forget a queue that was deleted."""
        logger.warning("the queue %s was deleted; its tickets are lost and posted again at their deadline", queue.name)
        self._known.pop(queue.key, None)
        self._depths.pop(queue.key, None)

    async def depths(self, among: Collection[BacklogKey] | None) -> dict[BacklogKey, int]:
        """About how many messages wait in these queues, as of at most `depths_age` ago."""
        if among is None:
            await self.refresh()
        keys = list(self._known if among is None else among)
        now, age = self._clock.monotonic(), self._terms.depths_age.total_seconds()
        old = [key for key in keys if key not in self._depths or now - self._depths[key][1] > age]
        for start in range(0, len(old), DEPTHS_AT_ONCE):
            part = old[start : start + DEPTHS_AT_ONCE]
            for key, depth in zip(part, await asyncio.gather(*map(self._ask_depth, part)), strict=True):
                self._depths[key] = depth, now
        return {key: depth for key in keys if (depth := self._depths[key][0])}

    def count(self, key: BacklogKey, published: int) -> None:
        """Add to the remembered depth what was published since."""
        if key in self._depths:
            depth, at = self._depths[key]
            self._depths[key] = depth + published, at

    async def _ask_depth(self, key: BacklogKey) -> int:
        if (queue := self._known.get(key) or await self._find_one(key)) is None:
            return 0
        try:
            answer = await self._service.call(
                "GetQueueAttributes", QueueUrl=queue.url, AttributeNames=["ApproximateNumberOfMessages"]
            )
        except AwsRefusal as refusal:
            if not is_absent(refusal):
                raise unavailable("GetQueueAttributes", queue.name, refusal) from None
            self.forget(queue)
            return 0
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])

    async def _open_expected(self, key: BacklogKey) -> None:
        """A missing one that must not be created is looked for again with the next list."""
        if self._terms.create:
            await self.open(key)
        elif await self._find_one(key) is None:
            logger.warning(
                "there is no queue %s for jobs of type %s in queue %s; create it, or set broker.create = true",
                wire.queue_name(self._prefix, key), key.type, key.queue,
            )  # fmt: skip
            self._missing.add(key)

    async def _find_one(self, key: BacklogKey) -> SqsQueue | None:
        name = wire.queue_name(self._prefix, key)
        try:
            answer = await self._service.call("GetQueueUrl", QueueName=name)
        except AwsRefusal as refusal:
            if is_absent(refusal):
                return None
            raise unavailable("GetQueueUrl", name, refusal) from None
        return self._remember(key, name, answer["QueueUrl"])

    async def _create(self, key: BacklogKey) -> SqsQueue:
        name = wire.queue_name(self._prefix, key)
        if not self._terms.create:
            raise BrokerUnavailable(f"there is no queue {name}; create it, or set broker.create = true")
        tags = {QUEUE_TAG: wire.encode_tag(key.queue), TYPE_TAG: wire.encode_tag(key.type)}
        try:
            answer = await self._service.call(
                "CreateQueue", QueueName=name, Attributes=self._terms.attributes, tags=tags
            )
        except AwsRefusal as refusal:
            raise unavailable("CreateQueue", name, refusal) from None
        logger.info("created the queue %s for jobs of type %s in queue %s", name, key.type, key.queue)
        return self._remember(key, name, answer["QueueUrl"])

    async def _note(self, name: str, url: str) -> None:
        """Remember a listed queue; one with a digest tells its backlog by tags."""
        if name not in self._names:
            self._names[name] = wire.plain_key(self._prefix, name) or await self._read_tags(name, url)
        if (key := self._names[name]) is not None and key not in self._known:
            self._remember(key, name, url)

    async def _read_tags(self, name: str, url: str) -> BacklogKey | None:
        try:
            tags = (await self._service.call("ListQueueTags", QueueUrl=url)).get("Tags", {})
            key = BacklogKey(wire.decode_tag(tags[QUEUE_TAG]), wire.decode_tag(tags[TYPE_TAG]))
        except AwsRefusal as refusal:
            if is_absent(refusal):
                return None
            raise unavailable("ListQueueTags", name, refusal) from None
        except (KeyError, ValueError):
            key = None
        if key is None or wire.queue_name(self._prefix, key) != name:
            logger.warning(
                "the queue %s is not used: its tags %s and %s do not tell whose it is", name, QUEUE_TAG, TYPE_TAG
            )
            return None
        return key

    def _remember(self, key: BacklogKey, name: str, url: str) -> SqsQueue:
        self._known[key] = queue = SqsQueue(key, name, url)
        return queue


async def list_queues(service: AwsService, prefix: str) -> list[tuple[str, str]]:
    """Name and URL of every queue whose name begins with `prefix`."""
    try:
        urls = await read_pages(service, "ListQueues", "QueueUrls", QueueNamePrefix=prefix, MaxResults=1000)
    except AwsRefusal as refusal:
        raise unavailable("ListQueues", f"{prefix}*", refusal) from None
    return [(url.rpartition("/")[2], url) for url in urls]


async def read_pages(service: AwsService, action: str, field: str, **arguments: Any) -> list[Any]:
    """What all pages of an answer hold under `field`."""
    found: list[Any] = []
    while True:
        answer = await service.call(action, **arguments)
        found += answer.get(field, ())
        if not answer.get("NextToken"):
            return found
        arguments["NextToken"] = answer["NextToken"]
