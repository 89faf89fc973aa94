"""The broker's window: which jobs get a ticket with their submit, and when the dispatchers are woken.

For each queue and type the broker holds tickets of the next few jobs, its window; the other due jobs, their backlog,
wait in the store. A job that is due gets its ticket with its submit if the window has room and there is no backlog.
Workers claim jobs of a backlog from the store themselves; dispatchers give tickets to the rest.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from operator import attrgetter

from msgspec.structs import replace

from penstock.broker import Broker
from penstock.config import TimingSettings
from penstock.engine.catalog import Catalog
from penstock.engine.signals import Signals
from penstock.model.clock import Clock, seconds
from penstock.model.errors import BrokerUnavailable, Unavailable
from penstock.model.ids import ShardId, shard_of
from penstock.model.job import BacklogKey, Claim, Job, NewJob, Ticket
from penstock.model.lifecycle import Event, Move, State
from penstock.model.workers import WorkRequest
from penstock.store import Shard, Share

logger = logging.getLogger("penstock.engine")

ZERO = timedelta(0)
WAITING = frozenset({State.QUEUED, State.SCHEDULED})
POSTED_BY_SUBMITTER = frozenset({Move.SUBMIT, Move.TICK})
PUBLISH_WITHIN = timedelta(seconds=2)
"""How long a publish may take; the tickets of one that takes longer expire and are published again."""

REPUBLISH_AFTER = timedelta(seconds=1)


class WakeUps:
    """Wakes loops. Each waits on an event of its own, so that none clears it before another has seen it."""

    def __init__(self) -> None:
        self._events: list[asyncio.Event] = []

    def event(self) -> asyncio.Event:
        """The event of one more loop."""
        event = asyncio.Event()
        self._events.append(event)
        return event

    def drop(self, event: asyncio.Event) -> None:
        """Forget the event of a loop that has ended."""
        self._events.remove(event)

    def set(self) -> None:
        for event in self._events:
            event.set()


class Tickets:
    """This process's view of the broker's window. A hint: being wrong costs a delay, never a job."""

    def __init__(
        self,
        broker: Broker,
        catalog: Catalog,
        signals: Signals,
        timing: TimingSettings,
        clock: Clock,
        *,
        shared: bool,
    ) -> None:
        self._broker = broker
        self._catalog = catalog
        self._signals = signals
        self._shared = shared
        self._timing = timing
        self._clock = clock
        self._posting: set[asyncio.Future[None]] = set()
        self._outgoing: list[Ticket] = []
        self._sending: asyncio.Future[None] | None = None
        self._left_by_shard: dict[ShardId, frozenset[BacklogKey]] = {}
        self._left: frozenset[BacklogKey] = frozenset()
        self._hinted_until: dict[BacklogKey, float] = {}
        self._depths_known: Counter[BacklogKey] = Counter()
        self._depths_at = float("-inf")
        self._takers: set[asyncio.Task[list[Ticket]]] = set()
        self.wake = WakeUps()
        self._hint_seconds = 2 * timing.dispatch_seconds
        """How long a process without a dispatcher remembers that there is a backlog: dispatchers say it each pass."""
        redelivers = broker.capabilities.redelivers
        self.ticket_for = seconds(timing.redelivered_ticket_seconds if redelivers else timing.ticket_seconds)
        """How long a ticket may be out before it is published again. Short: a process that dies with tickets, or before
        it has published them, delays their jobs by this time. Tickets that wait in the broker do not expire. Long for a
        broker that redelivers, where only a ticket that never got there is lost."""

    async def mark(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """The jobs to insert, with those `ticketed` that are due and find room; `publish_marked` must follow."""
        paused = (await self._catalog.read()).paused
        wanted = Counter([(job.queue, job.type) for job in jobs if job.delay is None and job.due_at is None])
        room = await self.room([BacklogKey(*backlog) for backlog in wanted])
        # All or nothing per backlog: a part of a batch in the broker would overtake the rest of it.
        fits = {backlog for backlog in room if backlog.queue not in paused and wanted[backlog] <= room[backlog]}
        if not fits:
            return list(jobs)
        # A BacklogKey equals the tuple of its parts, which is quicker to make.
        return [
            replace(job, ticketed=True)
            if job.delay is None and job.due_at is None and (job.queue, job.type) in fits
            else job
            for job in jobs
        ]

    async def publish_marked(self, marked: Sequence[NewJob], created: Sequence[Job] | Sequence[NewJob]) -> None:
        """Publish the tickets of the jobs that were created, and wake the dispatchers for those without."""
        ticketed = {job.id for job in marked if job.ticketed}
        await self.publish([_ticket(job) for job in created if job.id in ticketed])
        for backlog in {(job.queue, job.type) for job in created if job.id not in ticketed}:
            self.mark_backlog(BacklogKey(*backlog))

    async def room(self, backlogs: Iterable[BacklogKey]) -> dict[BacklogKey, int]:
        """How many jobs of each backlog may get a ticket with their submit; 0 if others wait ahead of them.

        0 for all while the broker is unavailable: the dispatchers give those jobs their tickets.
        """
        keys = frozenset(backlogs)
        try:
            depths = await self._depths(keys)
        except Unavailable:
            return dict.fromkeys(keys, 0)
        window = self._timing.window_jobs
        return {key: 0 if self._has_backlog(key) else max(0, window - depths.get(key, 0)) for key in keys}

    async def _depths(self, backlogs: frozenset[BacklogKey]) -> Mapping[BacklogKey, int]:
        """The tickets in the broker, of these backlogs at least; those of a shared one may be a moment old."""
        if not self._broker.capabilities.exact_depths:
            return await self._broker.depths(backlogs)
        now = self._clock.monotonic()
        if not self._shared or now - self._depths_at > self._timing.depths_seconds:
            self._depths_known, self._depths_at = Counter(await self._broker.depths()), now
        return self._depths_known

    def _has_backlog(self, backlog: BacklogKey) -> bool:
        """Whether jobs wait in the store, as far as this process knows."""
        return backlog in self._left or self._hinted_until.get(backlog, 0.0) > self._clock.monotonic()

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        """Publish tickets of jobs that are durably marked. Never fails: the dispatchers publish again what is missing.

        To a shared broker they are sent in the background, together with those of concurrent calls.
        """
        if not self._shared:
            await self._publish(tickets)
            return
        self._outgoing += tickets
        if self._sending is None and self._outgoing:
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        try:
            while self._outgoing:
                tickets, self._outgoing = self._outgoing, []
                await self._publish(tickets)
        finally:
            self._sending = None

    async def _publish(self, tickets: Sequence[Ticket]) -> None:
        try:
            await self.post(tickets)
        except BrokerUnavailable as error:
            self._defer(tickets, error)

    def _defer(self, tickets: Sequence[Ticket], error: BrokerUnavailable) -> None:
        logger.warning("broker took none of %d tickets (%s); they are posted again later", len(tickets), error)
        if self._broker.capabilities.redelivers:
            # Their deadline is long.
            self.publish_later(tickets)

    async def post(self, tickets: Sequence[Ticket]) -> None:
        """Publish tickets, or raise BrokerUnavailable: some may be published all the same."""
        if not tickets:
            return
        try:
            async with asyncio.timeout(PUBLISH_WITHIN.total_seconds()):
                await self._broker.publish(tickets)
        except TimeoutError:
            raise BrokerUnavailable(f"no answer within {PUBLISH_WITHIN.total_seconds():g} s") from None
        for key, posted in Counter([(ticket.queue, ticket.type) for ticket in tickets]).items():
            self._depths_known[BacklogKey(*key)] += posted

    def publish_later(self, tickets: Sequence[Ticket]) -> None:
        """Publish again after a pause: the shard of these tickets did not answer a claim, or the broker did not."""

        async def post_again() -> None:
            await self._clock.sleep(REPUBLISH_AFTER)
            try:
                await self.post(tickets)
            except BrokerUnavailable as error:
                self._defer(tickets, error)
            else:
                await self.discard(tickets)

        posting = asyncio.ensure_future(post_again())
        self._posting.add(posting)
        posting.add_done_callback(self._posting.discard)

    def record_backlog(self, shard: ShardId, left: frozenset[BacklogKey]) -> None:
        """Note what a shard's dispatcher left in the store on its last pass, and send that to other processes."""
        self._left_by_shard[shard] = left
        self._left = frozenset().union(*self._left_by_shard.values())
        self._hinted_until = {key: until for key, until in self._hinted_until.items() if key in left}
        if left:
            self._signals.window_full.send(left)

    def receive_backlog(self, backlogs: Iterable[BacklogKey]) -> None:
        """Note what a dispatcher of another process left in the store: new jobs must not overtake it."""
        until = self._clock.monotonic() + self._hint_seconds
        self._hinted_until.update(dict.fromkeys(backlogs, until))

    def mark_backlog(self, backlog: BacklogKey) -> None:
        """Note that a job waits in the store for a ticket, and wake the dispatchers unless they know the backlog."""
        self._hinted_until[backlog] = self._clock.monotonic() + self._hint_seconds
        if backlog not in self._left:
            self._signals.backlog.publish(None)

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        """Tickets for a worker as soon as there are any; none after `wait`, or when a pause has changed."""
        if wait <= ZERO:
            return await self._broker.take(wanted, limit, wait)
        taker = asyncio.ensure_future(self._broker.take(wanted, limit, wait))
        self._takers.add(taker)
        try:
            return await taker
        except asyncio.CancelledError:
            if _cancelling() or not taker.cancelled():
                taker.cancel()
                raise
            return []
        finally:
            self._takers.discard(taker)

    async def discard(self, tickets: Sequence[Ticket]) -> None:
        """Tell the broker that the store has decided about these. Never fails: what was not told comes again."""
        if tickets and self._broker.capabilities.redelivers:
            with suppress(Unavailable):
                await self._broker.discard(tickets)

    def pauses_changed(self) -> None:
        """Let waiting claims ask again with what is paused now, and wake the dispatchers of this process."""
        for taker in self._takers:
            taker.cancel()
        self.wake.set()

    async def flush(self) -> None:
        """Wait until the tickets that are being sent are published, or refused."""
        if self._sending is not None:
            await self._sending

    async def close(self) -> None:
        """Publish what is being sent; drop what would be published later."""
        for posting in self._posting:
            posting.cancel()
        await self.flush()

    async def wake_if_low(self, backlogs: Iterable[BacklogKey]) -> None:
        """Wake the dispatchers if a window is less than half full and has a backlog."""
        if waiting := [key for key in backlogs if self._has_backlog(key)]:
            with suppress(Unavailable):
                depths = await self._depths(frozenset(waiting))
                if any(depths.get(key, 0) * 2 < self._timing.window_jobs for key in waiting):
                    self._signals.backlog.publish(None)

    def observe(self, events: Sequence[Event]) -> None:
        """Wake the dispatchers for jobs that came back to queued or scheduled."""
        for event in events:
            # Most have ended.
            if event.after not in WAITING or event.move in POSTED_BY_SUBMITTER:
                continue
            if event.after is State.QUEUED:
                self.mark_backlog(BacklogKey(event.queue, event.type))
            elif event.after is State.SCHEDULED:
                self._signals.backlog.publish(None)


def _ticket(job: Job | NewJob) -> Ticket:
    return Ticket(shard_of(job.id), job.id, job.queue, job.type, job.priority)


def _cancelling() -> bool:
    """Whether this task is being cancelled, not only the call that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


_QUEUE = attrgetter("queue")
CHECK_INTERVAL = timedelta(seconds=1)
"""How often a backlog is checked of which nothing is known."""

ShardBacklog = tuple[ShardId, BacklogKey]
"""The backlog of one shard."""


class BacklogHints:
    """What the claims of this process have seen of the backlogs. A wrong hint costs a query or a delay, never a job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._priority_of: dict[ShardBacklog, int] = {}
        self._checked_at: dict[ShardBacklog, float] = {}

    def to_check(self, shard: ShardId, backlogs: Iterable[BacklogKey]) -> list[BacklogKey]:
        """Those known to have jobs, and those not checked for CHECK_INTERVAL."""
        now = self._clock.monotonic()
        return [key for key in backlogs if (shard, key) in self._priority_of or self._is_unchecked((shard, key), now)]

    def priorities(self, shards: Iterable[Shard], backlogs: frozenset[BacklogKey]) -> dict[str, int]:
        """By queue, the priority of the next jobs in those of these backlogs that are known to have jobs."""
        urgent: dict[str, int] = {}
        here = {shard.shard for shard in shards}
        for (shard, key), priority in self._priority_of.items():
            if priority > urgent.get(key.queue, 0) and shard in here and key in backlogs:
                urgent[key.queue] = priority
        return urgent

    def mark_full(self, backlogs: Iterable[ShardBacklog]) -> None:
        """A claim got as many tickets as it could take: more jobs may wait, of unknown priority."""
        for backlog in backlogs:
            self._priority_of.setdefault(backlog, 0)

    def record_check(self, shard: ShardId, asked: Iterable[Share], claims: Sequence[Claim]) -> None:
        """Note which backlogs have more jobs: those of a queue that gave as many as were asked for."""
        now = self._clock.monotonic()
        found = Counter(map(_QUEUE, claims))
        next_of = {(claim.queue, claim.type): claim.priority for claim in claims}
        for share in asked:
            if found[share.queue] >= share.jobs:
                keys = (BacklogKey(*key) for key in next_of if key[0] == share.queue)
                self._priority_of.update({(shard, key): next_of[key] for key in keys})
            else:
                self._mark_empty([(shard, BacklogKey(share.queue, type_name)) for type_name in share.types], now)

    def _mark_empty(self, backlogs: Iterable[ShardBacklog], now: float) -> None:
        for backlog in backlogs:
            self._priority_of.pop(backlog, None)
            self._checked_at[backlog] = now

    def _is_unchecked(self, backlog: ShardBacklog, now: float) -> bool:
        return now - self._checked_at.get(backlog, float("-inf")) >= CHECK_INTERVAL.total_seconds()
