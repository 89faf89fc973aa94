"""Messages of SQS queues: sent, received, deleted and put back, ten in a call; each entry may fail by itself."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from msgspec import Struct

from penstock.aws import AwsRefusal, AwsService
from penstock.broker.sqs import wire
from penstock.broker.sqs.queues import SqsQueue, is_absent, unavailable
from penstock.model.clock import Clock
from penstock.model.errors import BrokerUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Ticket

logger = logging.getLogger("penstock.broker")

T = TypeVar("T")

SENDS_AT_ONCE = 8
SEND_TRIES = 3
DELETE_WITHIN = timedelta(seconds=1)
"""How long a discarded message waits for others to be deleted with: far less than its visibility time."""

RECEIPT_KEPT_FOR = timedelta(minutes=10)
"""How long the receipt of a ticket is kept that is never discarded; it came again long ago."""


class QueueDeleted(BrokerUnavailable):
    """The queue does not exist any more."""


class SqsReceipt(Struct, frozen=True):
    """What a message that was received can be deleted or put back with."""

    queue: SqsQueue
    handle: str
    received_at: float


class SqsMessages:
    """Tickets as messages, and the receipts of those that were received and neither discarded nor put back.

    `polls` is the client for calls that wait at SQS.
    """

    def __init__(self, service: AwsService, polls: AwsService, clock: Clock, deadline: timedelta) -> None:
        self._service = service
        self._polls = polls
        self._clock = clock
        self._deadline = deadline
        self._receipts: dict[JobId, list[SqsReceipt]] = {}
        self._discarded: dict[SqsQueue, list[str]] = {}
        self._sends = asyncio.Semaphore(SENDS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing: asyncio.Task[None] | None = None

    async def send(self, queue: SqsQueue, tickets: Sequence[Ticket], group: str | None = None) -> None:
        """Send all, or raise BrokerUnavailable: some may be sent all the same.

        `group` is the MessageGroupId, by which SQS shares a queue fairly.
        """
        batches = _batches(tickets, wire.BATCH_ENTRIES)
        answers = await asyncio.gather(
            *(self._send_batch(queue, batch, group) for batch in batches), return_exceptions=True
        )
        for failed in answers:
            if isinstance(failed, BaseException):
                raise failed

    async def receive(self, queue: SqsQueue, most: int, wait: timedelta) -> list[Ticket]:
        """Up to `most` tickets, ten at most, as soon as there are any; none after `wait`. Their receipts are kept."""
        self._drop_old_receipts()
        waits = wait.total_seconds() > 0
        messages = (
            await self._call(
                self._polls if waits else self._service,
                "ReceiveMessage",
                queue,
                deadline=self._deadline + wait,
                MaxNumberOfMessages=min(most, wire.BATCH_ENTRIES),
                WaitTimeSeconds=round(wait.total_seconds()),
            )
        ).get("Messages", ())
        found = [self._read(queue, message) for message in messages]
        return [ticket for ticket in found if ticket is not None]

    def discard(self, tickets: Sequence[Ticket]) -> None:
        """Delete the messages of these tickets soon, together with others."""
        for receipt in self._pop_receipts(tickets):
            self._doom(receipt.queue, receipt.handle)

    async def put_back(self, tickets: Sequence[Ticket]) -> None:
        """Let the tickets be received again at once. Those that cannot be put back come again a little later."""
        by_queue: dict[SqsQueue, list[str]] = {}
        for receipt in self._pop_receipts(tickets):
            by_queue.setdefault(receipt.queue, []).append(receipt.handle)
        for queue, handles in by_queue.items():
            for batch in _batches(handles, wire.BATCH_ENTRIES):
                entries = [_entry(number, handle, VisibilityTimeout=0) for number, handle in enumerate(batch)]
                await self._call_each("ChangeMessageVisibilityBatch", queue, entries)

    async def close(self) -> None:
        """Delete what was discarded."""
        if self._flushing is not None:
            self._flushing.cancel()
        self._start_deletes(least=1)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _read(self, queue: SqsQueue, message: dict[str, Any]) -> Ticket | None:
        handle = str(message["ReceiptHandle"])
        try:
            ticket = wire.decode_ticket(str(message["Body"]))
        except ValueError as error:
            logger.warning("a message of the queue %s is deleted: it is no ticket (%s)", queue.name, error)
            self._doom(queue, handle)
            return None
        if ticket.backlog_key != queue.key:
            logger.warning(
                "the queue %s holds a ticket of type %s in queue %s, which is left there: does another system have a "
                "prefix that begins like this one's?", queue.name, ticket.type, ticket.queue,
            )  # fmt: skip
            return None
        self._receipts.setdefault(ticket.job, []).append(SqsReceipt(queue, handle, self._clock.monotonic()))
        return ticket

    async def _send_batch(self, queue: SqsQueue, tickets: Sequence[Ticket], group: str | None) -> None:
        """Send a batch; what SQS could not take is tried again, what it refuses is not."""
        terms = {"MessageGroupId": group} if group is not None else {}
        entries = [
            {"Id": str(number), "MessageBody": wire.encode_ticket(ticket), **terms}
            for number, ticket in enumerate(tickets)
        ]
        failed: list[dict[str, Any]] = []
        for _ in range(SEND_TRIES):
            async with self._sends:
                answer = await self._call(self._service, "SendMessageBatch", queue, Entries=entries)
            failed = answer.get("Failed") or []
            again = {one["Id"] for one in failed if not one.get("SenderFault")}
            if len(again) < len(failed) or not failed:
                break
            entries = [entry for entry in entries if entry["Id"] in again]
        if failed:
            raise BrokerUnavailable(
                f"SQS did not take {len(failed)} of {len(tickets)} tickets for the queue {queue.name} "
                f"({failed[0].get('Code')}: {failed[0].get('Message', '')})"
            )

    def _doom(self, queue: SqsQueue, handle: str) -> None:
        self._discarded.setdefault(queue, []).append(handle)
        self._start_deletes(least=wire.BATCH_ENTRIES)
        if self._discarded and (self._flushing is None or self._flushing.done()):
            self._flushing = asyncio.ensure_future(self._flush_later())

    async def _flush_later(self) -> None:
        await self._clock.sleep(DELETE_WITHIN)
        self._start_deletes(least=1)

    def _start_deletes(self, least: int) -> None:
        """Delete full batches, or with `least=1` everything."""
        for queue, handles in list(self._discarded.items()):
            while len(handles) >= least:
                batch = handles[: wire.BATCH_ENTRIES]
                del handles[: wire.BATCH_ENTRIES]
                task = asyncio.ensure_future(self._delete(queue, batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if not handles:
                del self._discarded[queue]

    async def _delete(self, queue: SqsQueue, handles: Sequence[str]) -> None:
        entries = [_entry(number, handle) for number, handle in enumerate(handles)]
        await self._call_each("DeleteMessageBatch", queue, entries)

    async def _call_each(self, action: str, queue: SqsQueue, entries: Sequence[dict[str, Any]]) -> None:
        """A batch of hints: an entry that fails comes again by itself."""
        try:
            failed = (await self._call(self._service, action, queue, Entries=entries)).get("Failed") or []
        except BrokerUnavailable as error:
            logger.debug("%s of %d messages: %s", action, len(entries), error)
            return
        for one in failed:
            logger.debug("%s of a message in %s: %s %s", action, queue.name, one.get("Code"), one.get("Message"))

    async def _call(self, service: AwsService, action: str, queue: SqsQueue, **arguments: Any) -> dict[str, Any]:
        try:
            return await service.call(action, QueueUrl=queue.url, **arguments)
        except AwsRefusal as refusal:
            if is_absent(refusal):
                raise QueueDeleted(f"the queue {queue.name} does not exist any more") from None
            raise unavailable(action, queue.name, refusal) from None

    def _pop_receipts(self, tickets: Sequence[Ticket]) -> list[SqsReceipt]:
        return [receipt for ticket in tickets for receipt in self._receipts.pop(ticket.job, ())]

    def _drop_old_receipts(self) -> None:
        oldest = self._clock.monotonic() - RECEIPT_KEPT_FOR.total_seconds()
        while self._receipts and self._receipts[first := next(iter(self._receipts))][-1].received_at < oldest:
            del self._receipts[first]


def _entry(number: int, handle: str, **more: object) -> dict[str, Any]:
    return {"Id": str(number), "ReceiptHandle": handle, **more}


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
