"""The relay of one subscription on one shard: it reads the journal, delivers, and writes down how far it is.

Its role on that shard is held by one process at a time. A healthy sink and one that is down cost no row per event.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine import Engine
from penstock.engine.leader import RENEWED_AFTER, Leadership
from penstock.events.cloudevents import OutgoingEvent
from penstock.events.delivery_plan import DeliveryRound, missed_record
from penstock.events.lanes import EventWindow, HeldEvent, cut_window
from penstock.events.notifier import Delivery, Notifier, Unreachable
from penstock.events.pace import RequestPace, share_limits
from penstock.events.relay_progress import RelayProgress, RoleLost, load_progress
from penstock.model.errors import Refused, Unavailable
from penstock.model.ids import JobId
from penstock.model.job import Job
from penstock.model.journal import (
    DeliveryRecord,
    JournalPage,
    Parked,
    ParkedState,
    Position,
)
from penstock.model.subscriptions import EventContent, Subscription, SubscriptionState
from penstock.model.wire.jobs import JobItem
from penstock.store import Shard
from penstock.store.journal import relay_role

logger = logging.getLogger("penstock.events")

ZERO: Final = timedelta(0)
LOOK_INTERVAL: Final = timedelta(seconds=1)
"""How soon a move is seen whose signal was missed, a replay, and the end of a pause."""
ROUND_SPAN: Final = timedelta(seconds=1)
"""Messages are begun for so long before the relay writes down how far it is."""
DELIVERY_DEADLINE: Final = timedelta(seconds=30)
"""For notifiers that do not keep their own deadline."""
LAST_WRITE: Final = timedelta(seconds=2)
READ_EVENTS: Final = 1_000
LEAST_HELD: Final = 100
MOST_HELD: Final = 1_000
"""New events held at once: about twice what the sink took in the round before."""
MOST_DUE: Final = 200
"""Parked events that are looked at in one round."""


class RelayContext(Struct, frozen=True):
    """What the relays of one process share. `holder` names the process."""

    engine: Engine
    notifier: Notifier
    holder: str
    rng: random.Random


class Relay:
    """A service that is stepped: each step is a round of deliveries, and one write under the fence of its role."""

    def __init__(self, context: RelayContext, shard: Shard, subscription: Subscription) -> None:
        self.subscription = subscription
        self.wake = asyncio.Event()
        self._context = context
        self._shard = shard
        self._clock = context.engine.clock
        self._leadership = Leadership(shard, self._clock, context.holder, relay_role(subscription.relay_name))
        self._pace = RequestPace(self._clock)
        self._progress: RelayProgress | None = None
        self._held = LEAST_HELD

    async def step(self) -> timedelta:
        """Deliver what there is; how long to wait for more. Unavailable if the shard does not answer."""
        if self.subscription.state is not SubscriptionState.ACTIVE:
            await self.resign()
            return LOOK_INTERVAL
        if not await self._leadership.acquire() or (fence := self._leadership.fence) is None:
            self._progress = None
            return RENEWED_AFTER
        try:
            rest = await self._leadership.run(self._relay(fence))
        except RoleLost:
            logger.info("relay %s on shard %s: another process has its role", self.subscription.name, self._shard.shard)
            self._leadership.fence = self._progress = None
            return RENEWED_AFTER
        return ZERO if rest is None else rest

    @property
    def has_resigned(self) -> bool:
        """Whether it holds nothing."""
        return self._progress is None and self._leadership.fence is None

    async def resign(self) -> None:
        """Write what is unwritten, and let another process have the role at once."""
        progress, self._progress = self._progress, None
        try:
            if progress is not None and self._leadership.held:
                await progress.flush()
        except (Unavailable, RoleLost) as error:
            logger.debug("relay %s: its last position is not kept: %s", self.subscription.name, error)
        await self._leadership.resign()

    async def _relay(self, fence: int) -> timedelta:
        """One round, and how long to rest after it."""
        if self._progress is None or self._progress.fence != fence:
            self._progress = await load_progress(self._shard, self._clock, self.subscription, fence)
        progress = self._progress
        await progress.flush_deliveries()
        now = self._clock.now()
        if not progress.circuit.admits(now):
            return min(progress.circuit.until_probe(now), LOOK_INTERVAL)
        read = await self._read(progress)
        round = DeliveryRound(read.window, read.waiting, progress.circuit, now, self._context.rng)
        error = await self._deliver(round, read.jobs, progress)
        await self._conclude(round, progress)
        if error is not None:
            raise error
        return self._rest(round, read)

    async def _read(self, progress: RelayProgress) -> "RelayReading":
        """What there is to deliver: the next events that are wanted, and the parked ones that are due."""
        page, position = await self._read_page(progress)
        window = cut_window(page.entries, position, self.subscription.filter, self._held)
        if not page.entries:
            window = EventWindow((), max(position, Position(page.head + 1)))
        now = self._clock.now()
        parked = await self._shard.read_parked(self.subscription.relay_name, ParkedState.WAITING, MOST_DUE)
        due = [one for one in parked if one.due_at is not None and one.due_at <= now]
        window, jobs = await self._select(progress, window, due)
        return RelayReading(
            window=window,
            jobs=jobs,
            waiting=await self._read_waiting(window, due),
            is_last=window.end.number > page.head,
            next_due_at=next((one.due_at for one in parked[len(due) :]), None),
        )

    async def _read_page(self, progress: RelayProgress) -> tuple[JournalPage, Position]:
        """What comes after the position. What is gone is logged and recorded as missed, never skipped silently."""
        position = progress.position
        await self._shard.number_entries()
        page = await self._shard.read_journal(position.number - 1, READ_EVENTS)
        if position.number >= page.oldest:
            return page, position
        since = page.entries[0].at if page.entries else None
        record = missed_record(position, page.oldest, since, self._clock.now())
        logger.error("relay %s on shard %s: %s", self.subscription.name, self._shard.shard, record.detail)
        begun = Position(page.oldest)
        progress.note([record])
        return page, begun

    async def _select(
        self, progress: RelayProgress, window: EventWindow, due: Sequence[Parked]
    ) -> tuple[EventWindow, Mapping[JobId, Job]]:
        """The window without jobs whose tags are not wanted, and the jobs that must be known."""
        where = self.subscription.filter
        if where.tags is None and self.subscription.include is EventContent.FACTS:
            return window, {}
        wanted = list(dict.fromkeys([*(one.job for one in due), *(one.event.job for one in window.events)]))
        jobs = {job.id: job for job in await self._shard.get(wanted) if job is not None} if wanted else {}
        if where.tags is None:
            return window, jobs
        gone = [one for one in window.events if one.event.job not in jobs]
        progress.note([self._untagged(one) for one in gone])
        fit = [one for one in window.events if one.event.job in jobs and where.fits_tags(jobs[one.event.job].tags)]
        return EventWindow(fit, window.end), jobs

    def _untagged(self, one: HeldEvent) -> DeliveryRecord:
        id = one.event.id
        detail = "missed: the job is no longer kept, so its tags are not known"
        return DeliveryRecord(at=self._clock.now(), delivered=False, first=id, last=id, events=1, detail=detail)

    async def _read_waiting(self, window: EventWindow, due: Sequence[Parked]) -> Sequence[Parked]:
        """The parked events that are due, and those of their jobs and of the window's jobs; the due ones first."""
        jobs = list(dict.fromkeys([*(one.job for one in due), *(one.event.job for one in window.events)]))
        if not jobs:
            return ()
        found = await self._shard.read_parked_of(self.subscription.relay_name, jobs)
        turn = {job: number for number, job in enumerate(jobs)}
        return sorted(found, key=lambda one: (turn[one.job], one.version))

    async def _deliver(
        self, round: DeliveryRound, jobs: Mapping[JobId, Job], progress: RelayProgress
    ) -> Unavailable | None:
        """Send until all is sent or the round is over; the error, if what is to be sent cannot be read."""
        limits = share_limits(self.subscription.limits, len(self._context.engine.store.shards()))
        until = self._clock.monotonic() + ROUND_SPAN.total_seconds()
        sending: set[asyncio.Task[None]] = set()
        error: Unavailable | None = None
        try:
            while True:
                while error is None and self._clock.monotonic() < until:
                    events = round.take(self._clock.now(), self.subscription.events_at_once, limits.in_flight)
                    if not events:
                        break
                    await self._pace.wait_turn(limits.per_second)
                    sending.add(asyncio.ensure_future(self._send(round, events, jobs)))
                if not sending:
                    return error
                done, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                error = error or next((one for one in map(_error_of, done) if one is not None), None)
        except asyncio.CancelledError:
            # What was delivered would be sent again. If the role is lost, the fence keeps this from being written.
            async with asyncio.timeout(LAST_WRITE.total_seconds()):
                await progress.save(round.conclude(self._clock.now()))
            raise
        finally:
            for task in sending:
                task.cancel()

    async def _send(self, round: DeliveryRound, events: Sequence[HeldEvent], jobs: Mapping[JobId, Job]) -> None:
        outgoing = [OutgoingEvent(one.event, await self._item(jobs.get(one.event.job))) for one in events]
        delivery = await self._try_deliver(outgoing)
        round.settle(events, delivery, self._clock.now())

    async def _try_deliver(self, outgoing: Sequence[OutgoingEvent]) -> Delivery:
        try:
            async with asyncio.timeout(DELIVERY_DEADLINE.total_seconds()):
                return await self._context.notifier.deliver(self.subscription, outgoing)
        except TimeoutError:
            return Unreachable(f"no answer within {DELIVERY_DEADLINE.total_seconds():g} s", DELIVERY_DEADLINE)

    async def _item(self, job: Job | None) -> JobItem | None:
        """The job as it is now; None if facts only are wanted, or it or a large value of it is no longer kept."""
        if job is None or self.subscription.include is EventContent.FACTS:
            return None
        try:
            return await self._context.engine.jobs.item(job)
        except Refused as error:
            logger.warning("relay %s: job %s is sent as facts only: %s", self.subscription.name, job.id, error)
            return None

    async def _conclude(self, round: DeliveryRound, progress: RelayProgress) -> None:
        write = round.conclude(self._clock.now())
        delivered = sum(one.events for one in write.log if one.delivered)
        self._held = min(max(2 * delivered, LEAST_HELD), MOST_HELD)
        await progress.save(write)
        if round.gone is not None:
            await self._disable(f"the sink is gone: {round.gone}")

    async def _disable(self, reason: str) -> None:
        changed_at = self.subscription.changed_at
        await self._context.engine.subscriptions.disable(self.subscription.name, reason, changed_at)
        logger.warning("subscription %s is disabled: %s", self.subscription.name, reason)
        self.subscription = replace(self.subscription, state=SubscriptionState.DISABLED, reason=reason)

    def _rest(self, round: DeliveryRound, read: "RelayReading") -> timedelta:
        now = self._clock.now()
        if round.circuit.open:
            return min(round.circuit.until_probe(now), LOOK_INTERVAL)
        if round.gone is not None or not round.all_sent or not read.is_last:
            return ZERO
        return LOOK_INTERVAL if read.next_due_at is None else min(LOOK_INTERVAL, max(read.next_due_at - now, ZERO))


class RelayReading(Struct, frozen=True):
    """What a relay read for one round. `is_last`: the window reaches to the journal's end."""

    window: EventWindow
    jobs: Mapping[JobId, Job]
    waiting: Sequence[Parked]
    is_last: bool
    next_due_at: datetime | None


def _error_of(task: "asyncio.Task[None]") -> Unavailable | None:
    """What kept a message from being sent, if it may succeed later; any other error is raised."""
    error = task.exception()
    if error is None or isinstance(error, Unavailable):
        return error
    raise error
