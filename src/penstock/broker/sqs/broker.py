"""The broker on SQS: tickets that come again until they are discarded, in one standard queue for each backlog."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Self, TypeVar

from penstock.aws import AwsService
from penstock.broker.seam import BrokerCapabilities, SignalMessage
from penstock.broker.sqs import wire
from penstock.broker.sqs.messages import QueueDeleted, SqsMessages
from penstock.broker.sqs.pollers import POLL_WAIT, Pollers
from penstock.broker.sqs.queues import QueueTerms, SqsQueue, SqsQueues
from penstock.broker.sqs.signals import NoSignals, SnsSignals
from penstock.model.clock import Clock
from penstock.model.errors import BrokerUnavailable
from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Ticket
from penstock.model.workers import WorkRequest

T = TypeVar("T")

ZERO = timedelta(0)
DEADLINE = timedelta(seconds=5)
EMPTY_FOR = timedelta(seconds=1)
"""How long a queue that gave less than it was asked for counts as empty, for calls that do not wait."""


class SqsBroker:
    """A standard queue for each queue and type. Each request is paid for, so they are few and carry ten tickets.

    Received tickets are handed out inside the process: a call that is cancelled takes none. A ticket for which no call
    waits any more is put back; one that is taken comes again after the visibility time unless it is discarded.
    """

    capabilities = BrokerCapabilities(
        ordered=False,
        prioritised=False,
        deduplicates=False,
        exact_depths=False,
        finds_held=False,
        epochs=False,
        redelivers=True,
    )

    def __init__(
        self,
        queues: SqsQueues,
        messages: SqsMessages,
        signals: SnsSignals | NoSignals,
        services: AsyncExitStack,
        clock: Clock,
    ) -> None:
        self._queues = queues
        self._messages = messages
        self._signals = signals
        self._services = services
        self._clock = clock
        self._pollers = Pollers(queues, messages, clock)
        self._empty_at: dict[BacklogKey, float] = {}
        self._turn = 0
        self._tasks: set[asyncio.Future[object]] = set()
        self._closed = False

    @classmethod
    async def open(
        cls,
        prefix: str,
        clock: Clock,
        terms: QueueTerms | None = None,
        *,
        deadline: timedelta = DEADLINE,
        signals: bool = True,
    ) -> Self:
        """A broker of the AWS account and region of the environment. Nothing is asked of AWS yet."""
        wire.check_prefix(prefix)
        terms = terms or QueueTerms()
        async with AsyncExitStack() as opened:

            async def open_service(name: str, *, polls: bool = False) -> AwsService:
                read_timeout = deadline + POLL_WAIT if polls else None
                service = await AwsService.open(
                    name, error=BrokerUnavailable, deadline=deadline, read_timeout=read_timeout
                )
                opened.push_async_callback(service.close)
                return service

            sqs, polls = await open_service("sqs"), await open_service("sqs", polls=True)
            sns = (
                SnsSignals(await open_service("sns"), sqs, polls, prefix, clock, create=terms.create)
                if signals
                else None
            )
            messages = SqsMessages(sqs, polls, clock, deadline)
            return cls(SqsQueues(sqs, prefix, terms, clock), messages, sns or NoSignals(), opened.pop_all(), clock)

    async def publish(self, tickets: Sequence[Ticket], group: str | None = None) -> None:
        """As the seam says, with an optional group by which SQS shares a queue fairly."""
        if self._closed:
            return
        by_key: dict[BacklogKey, list[Ticket]] = {}
        for ticket in tickets:
            by_key.setdefault(ticket.backlog_key, []).append(ticket)
        await asyncio.gather(*(self._publish(key, mine, group) for key, mine in by_key.items()))

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        if self._closed or limit < 1:
            return []
        try:
            return await self._take(wanted, limit, wait)
        except BrokerUnavailable:
            if self._closed:
                return []
            raise

    async def _take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        queues = await self._queues.find(wanted)
        if wait > ZERO:
            return await self._pollers.take(wanted, limit, wait)
        looking = self._own(self._look(wanted, limit, self._to_look(queues)))
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:
            # The call ends only after its tickets are given to others, so that the next call finds them.
            await asyncio.shield(self._own(self._undo(looking)))
            raise

    async def discard(self, tickets: Sequence[Ticket]) -> None:
        """Deleted a moment later, together with others."""
        self._messages.discard(tickets)

    async def depths(self, among: Collection[BacklogKey] | None = None) -> dict[BacklogKey, int]:
        return await self._queues.depths(among)

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        """None: SQS does not tell what its queues hold."""
        return set()

    async def epoch(self) -> str:
        """Always the same: SQS does not tell that a queue was purged."""
        return "sqs"

    async def send_signal(self, signal: str, message: bytes = b"") -> None:
        self._signals.send(SignalMessage(signal, message))

    def listen(self, signals: Collection[str]) -> AsyncIterator[SignalMessage]:
        return self._signals.listen(signals)

    async def close(self) -> None:
        """As the seam says. Tickets that are just being received come again after the visibility time."""
        if self._closed:
            return
        self._closed = True
        await self._pollers.close()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._signals.close()
        await self._messages.close()
        await self._services.aclose()

    async def _publish(self, key: BacklogKey, tickets: Sequence[Ticket], group: str | None) -> None:
        queue = await self._queues.open(key)
        try:
            await self._messages.send(queue, tickets, group)
        except QueueDeleted:
            self._queues.forget(queue)
            queue = await self._queues.open(key)
            await self._messages.send(queue, tickets, group)
        self._queues.count(key, len(tickets))
        self._empty_at.pop(key, None)
        self._pollers.watch(queue)

    def _to_look(self, queues: Sequence[SqsQueue]) -> list[SqsQueue]:
        """The queues that may hold tickets, another one first each time.

        Not those that were just found empty, nor those that a poller waits at: it gets whatever comes.
        """
        now = self._clock.monotonic()
        found = [
            queue
            for queue in queues
            if now - self._empty_at.get(queue.key, float("-inf")) >= EMPTY_FOR.total_seconds()
            and not self._pollers.is_watched(queue)
        ]
        start = self._turn % len(found) if found else 0
        self._turn += 1
        return found[start:] + found[:start]

    async def _look(self, wanted: WorkRequest, limit: int, queues: Sequence[SqsQueue]) -> list[Ticket]:
        """Tickets that are there, in equal parts from these queues as far as they reach."""
        taken: list[Ticket] = []
        while queues and (room := limit - len(taken)) > 0:
            part, asked = max(1, room // len(queues)), queues[:room]
            answers = await asyncio.gather(*(self._receive(queue, part) for queue in asked))
            taken += [ticket for answer in answers for ticket in answer]
            more = [queue for queue, answer in zip(asked, answers, strict=True) if len(answer) == part]
            queues = [*queues[len(asked) :], *more]
        return await self._keep_wanted(wanted, taken)

    async def _keep_wanted(self, wanted: WorkRequest, taken: Sequence[Ticket]) -> list[Ticket]:
        """Put back the tickets of lower priority than wanted: SQS does not choose by it."""
        kept = [ticket for ticket in taken if wanted.wants(ticket.queue, ticket.type, ticket.priority)]
        if len(kept) < len(taken):
            await self._messages.put_back([ticket for ticket in taken if ticket not in kept])
        return kept

    async def _receive(self, queue: SqsQueue, most: int) -> list[Ticket]:
        """Up to `most`, in as many calls as that takes."""
        found: list[Ticket] = []
        while len(found) < most:
            asked = min(most - len(found), wire.BATCH_ENTRIES)
            try:
                got = await self._messages.receive(queue, asked, ZERO)
            except QueueDeleted:
                self._queues.forget(queue)
                return found
            found += got
            if len(got) < asked:
                self._empty_at[queue.key] = self._clock.monotonic()
                break
        return found

    async def _undo(self, looking: Awaitable[list[Ticket]]) -> None:
        try:
            await self._pollers.offer(await looking)
        except BrokerUnavailable:
            return

    def _own(self, work: Awaitable[T]) -> asyncio.Future[T]:
        """A task that goes on when its caller is cancelled, and that `close` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # type: ignore[arg-type]
        task.add_done_callback(self._tasks.discard)
        return task
