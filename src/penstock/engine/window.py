"""Tickets: which jobs get one at once, and when the dispatcher should look.

The broker holds a window of each line (the jobs of one type in one queue), not its backlog. A job that is due goes
there straight from its submit while the window has room and no other of its line waits in the store. What stands in
line behind the window workers take from the store; what they leave is the dispatcher's.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec.structs import replace

from penstock.broker import Broker
from penstock.config import TimingSettings
from penstock.engine.by_shard import split
from penstock.engine.catalog import Catalog
from penstock.engine.signals import Signals, WakeUps
from penstock.model.clock import Clock, seconds
from penstock.model.errors import BrokerUnavailable, Unavailable
from penstock.model.ids import ShardId, shard_of
from penstock.model.job import BacklogKey, Claim, Job, NewJob, Ticket
from penstock.model.lifecycle import Event, Move, State
from penstock.model.workers import WorkRequest
from penstock.store import Shard, Share

logger = logging.getLogger("penstock.engine")

ZERO = timedelta(0)
POSTED_BY_SUBMITTER = frozenset({Move.SUBMIT, Move.TICK})
PUBLISH_WITHIN = timedelta(seconds=2)
"""A broker slower than this is left alone: its tickets lapse and are posted again."""


REPUBLISH_AFTER = timedelta(seconds=1)
DEPTHS_MAX_AGE = 0.05
BACKLOG_HINT_TTL = 2.0
"""Seconds that a process without a dispatcher remembers that jobs of a line wait in the store."""


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
        self._backlogs: dict[ShardId, frozenset[BacklogKey]] = {}
        self._told: dict[BacklogKey, float] = {}
        self._depths_known: Counter[BacklogKey] = Counter()
        self._depths_at = float("-inf")
        self._takers: set[asyncio.Task[list[Ticket]]] = set()
        self.wake = WakeUps()

    @property
    def ticket_for(self) -> timedelta:
        """Short: a process that is lost with tickets in its hands, or before it has posted them, costs this time.

        What waits in the broker for longer does not lapse.
        """
        return seconds(self._timing.ticket_seconds)

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

    async def room(self, lines: Iterable[BacklogKey]) -> dict[BacklogKey, int]:
        """For each line, how many jobs may be ticketed at their submit; none where others wait ahead.

        None at all while the broker is out of reach: the dispatcher sees to those jobs.
        """
        try:
            depths = await self._depths()
        except Unavailable:
            return dict.fromkeys(lines, 0)
        window = self._timing.window_jobs
        return {line: 0 if self._has_backlog(line) else max(0, window - depths.get(line, 0)) for line in lines}

    async def _depths(self) -> Counter[BacklogKey]:
        """What the broker holds; of a shared one what it held a moment ago, so that not every submit has to ask."""
        now = self._clock.monotonic()
        if not self._shared or now - self._depths_at > DEPTHS_MAX_AGE:
            self._depths_known, self._depths_at = Counter(await self._broker.depths()), now
        return self._depths_known

    def _has_backlog(self, line: BacklogKey) -> bool:
        """Whether jobs of this line wait in the store, as far as this process knows."""
        return self._is_local_backlog(line) or self._told.get(line, 0.0) > self._clock.monotonic()

    def _is_local_backlog(self, line: BacklogKey) -> bool:
        """Whether a dispatcher of this process left jobs of this line waiting."""
        return any(line in backlog for backlog in self._backlogs.values())

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        """Post tickets of jobs that are durably marked. Never fails: what is not posted lapses and is posted again.

        To a shared broker they go together with all that come meanwhile, and nobody waits for that.
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
            logger.warning("broker took none of %d tickets (%s); they are posted again later", len(tickets), error)

    async def post(self, tickets: Sequence[Ticket]) -> None:
        """Post tickets, or raise BrokerUnavailable: then some may be posted all the same."""
        if not tickets:
            return
        try:
            async with asyncio.timeout(PUBLISH_WITHIN.total_seconds()):
                await self._broker.publish(tickets)
        except TimeoutError:
            raise BrokerUnavailable(f"no answer within {PUBLISH_WITHIN.total_seconds():g} s") from None
        for line, posted in Counter([(ticket.queue, ticket.type) for ticket in tickets]).items():
            self._depths_known[BacklogKey(*line)] += posted

    def publish_later(self, tickets: Sequence[Ticket]) -> None:
        """Post again what could not be claimed because its shard did not answer; whoever dies leaves it to lapse."""

        async def post_again() -> None:
            await self._clock.sleep(REPUBLISH_AFTER)
            await self.publish(tickets)

        posting = asyncio.ensure_future(post_again())
        self._posting.add(posting)
        posting.add_done_callback(self._posting.discard)

    def record_backlog(self, shard: ShardId, backlog: frozenset[BacklogKey]) -> None:
        """What the dispatcher of a shard left waiting on its last pass; other processes are told."""
        self._backlogs[shard] = backlog
        self._told = {line: until for line, until in self._told.items() if line in backlog}
        if backlog:
            self._signals.window_full.send(backlog)

    def receive_backlog(self, lines: Iterable[BacklogKey]) -> None:
        """Another process's dispatcher left jobs of these lines waiting: new ones must not overtake them."""
        until = self._clock.monotonic() + BACKLOG_HINT_TTL
        self._told.update(dict.fromkeys(lines, until))

    def mark_backlog(self, line: BacklogKey) -> None:
        """A job of this line waits in the store for a ticket. Where others wait already, a dispatcher here knows."""
        self._told[line] = self._clock.monotonic() + BACKLOG_HINT_TTL
        if not self._is_local_backlog(line):
            self._signals.backlog.publish(None)

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        """Tickets for a subscription, the moment there are any; none after `wait`, or when a pause has changed."""
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

    def pauses_changed(self) -> None:
        """Waiting takers must ask again, with what is paused now; the dispatcher must look."""
        for taker in self._takers:
            taker.cancel()
        self.wake.set()

    async def close(self) -> None:
        """Post what is on its way; let go of what would be posted later."""
        for posting in self._posting:
            posting.cancel()
        if self._sending is not None:
            await self._sending

    async def wake_if_low(self, lines: Iterable[BacklogKey]) -> None:
        """Wake the dispatchers where the window runs low, more wait behind it, and takers cannot help themselves."""
        if low := [line for line in lines if self._has_backlog(line)]:
            with suppress(Unavailable):
                depths = await self._depths()
                if any(depths.get(line, 0) * 2 < self._timing.window_jobs for line in low):
                    self._signals.backlog.publish(None)

    def observe(self, events: Sequence[Event]) -> None:
        """Jobs that came back to queued or scheduled need the dispatcher."""
        for event in events:
            if event.move in POSTED_BY_SUBMITTER:
                continue
            if event.after is State.QUEUED:
                self.mark_backlog(BacklogKey(event.queue, event.type))
            elif event.after is State.SCHEDULED:
                self._signals.backlog.publish(None)


def _ticket(job: Job | NewJob) -> Ticket:
    return Ticket(shard_of(job.id), job.id, job.queue, job.type, job.priority)


def _cancelling() -> bool:
    """True when this very task is being cancelled, not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


CHECK_INTERVAL = timedelta(seconds=1)
"""How often a line is looked at of which nothing is known."""

ShardBacklog = tuple[ShardId, BacklogKey]
"""A line on one shard."""


class BacklogHints:
    """What this process's takers have seen. A hint: being wrong costs a look or a moment, never a job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._long: dict[ShardBacklog, int] = {}
        self._checked_at: dict[ShardBacklog, float] = {}

    def to_check(self, shard: ShardId, lines: Iterable[BacklogKey]) -> list[BacklogKey]:
        """Those that are long here, and those that nobody has looked at for a while."""
        now = self._clock.monotonic()
        return [line for line in lines if (shard, line) in self._long or self._rested((shard, line), now)]

    def priorities(self, shards: Iterable[Shard], lines: frozenset[BacklogKey]) -> dict[str, int]:
        """By queue, the priority of the next jobs in these lines, of those that are known to be long."""
        urgent: dict[str, int] = {}
        here = {shard.shard for shard in shards}
        for (shard, line), priority in self._long.items():
            if priority > urgent.get(line.queue, 0) and shard in here and line in lines:
                urgent[line.queue] = priority
        return urgent

    def mark_full(self, places: Iterable[ShardBacklog]) -> None:
        """There were as many tickets as a taker could take: more jobs may stand behind them, of unknown priority."""
        for place in places:
            self._long.setdefault(place, 0)

    def record_check(self, shard: ShardId, asked: Iterable[Share], claims: Sequence[Claim]) -> None:
        """The lines of a queue that gave as much as was asked of it go on; otherwise all of them are at their end."""
        now = self._clock.monotonic()
        found = split(claims, lambda claim: claim.queue)
        for share in asked:
            given = found.get(share.queue, [])
            if len(given) >= share.jobs:
                self._long.update({(shard, BacklogKey(claim.queue, claim.type)): claim.priority for claim in given})
            else:
                self._end([(shard, BacklogKey(share.queue, type_name)) for type_name in share.types], now)

    def _end(self, places: Iterable[ShardBacklog], now: float) -> None:
        for place in places:
            self._long.pop(place, None)
            self._checked_at[place] = now

    def _rested(self, place: ShardBacklog, now: float) -> bool:
        return now - self._checked_at.get(place, float("-inf")) >= CHECK_INTERVAL.total_seconds()
