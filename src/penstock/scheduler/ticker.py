"""The ticker: reads the schedules due in the coming slot, keeps them on a timer, and decides each tick at its instant.

Any number of tickers may run. Each tries every tick, and the shard accepts one decision: to be refused is normal. Time
is the shard's: each reading carries its clock, which is extrapolated here with the monotonic clock.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from penstock.engine import SchedulerApi
from penstock.model.clock import EPOCH, Clock
from penstock.model.errors import Invalid
from penstock.model.schedule import Decision, Due, Overlap
from penstock.model.ticks import counts_from_completion, next_tick
from penstock.scheduler.tick_plan import VERDICTS_MAX, plan, wake_at

logger = logging.getLogger("penstock.scheduler")

READ_SCHEDULES = 5000
APPLY_VERDICTS = 2000
LONGEST_REST = timedelta(seconds=5)
"""How soon a change is seen whose signal was lost: made by another server, or a job that ended there."""

LISTEN_FOR = timedelta(seconds=20)
RETRY_PAUSE = timedelta(milliseconds=20)
"""Between two readings where another scheduler was faster, so that the slower ones do not overload the shard."""

CONTENTION_DELAY = timedelta(milliseconds=20)
"""How long after the instant a scheduler decides that was slower the last time: a stand-by for the faster one."""

ZERO = timedelta(0)
MIN_REST = timedelta(milliseconds=1)


class UpcomingSchedule(Struct, frozen=True):
    """A schedule on the timer."""

    at: datetime
    due: Due


class Planned(Struct, frozen=True):
    """A schedule as it was read, and the decision about it."""

    due: Due
    decision: Decision


class Ticker:
    """`step` decides due ticks and returns the delay until the next step; `follow_changes` wakes it early."""

    def __init__(self, api: SchedulerApi, slot: timedelta, clock: Clock) -> None:
        self.wake = asyncio.Event()
        self._api = api
        self._slot = slot
        self._clock = clock
        self._seen: str | None = None
        self._changed = False
        self._contention_delay = ZERO
        self._verdicts_max = VERDICTS_MAX
        self._held: list[UpcomingSchedule] = []
        self._read_at, self._shard_time = clock.monotonic(), EPOCH
        self._read_by = self._read_at

    async def step(self) -> timedelta:
        fresh = self._changed or self._clock.monotonic() >= self._read_by
        if fresh:
            await self._read()
        if ripe := self._take_ripe():
            await self._decide(ripe if fresh else await self._refresh(ripe))
        return self._delay()

    async def follow_changes(self) -> timedelta:
        """Wait until a schedule has changed, and wake the step."""
        agenda = await self._api.due(MIN_REST, 1, LISTEN_FOR, self._seen)
        if agenda.seen == self._seen:
            return RETRY_PAUSE
        self._seen, self._changed = agenda.seen, True
        self.wake.set()
        return ZERO

    async def _read(self) -> None:
        # Set before the reading, so that a change during it, or its failure, leads to another one.
        self._changed, self._read_by = False, self._clock.monotonic()
        agenda = await self._api.due(self._slot, READ_SCHEDULES)
        self._read_at, self._shard_time = self._clock.monotonic(), agenda.now
        self._verdicts_max = min(VERDICTS_MAX, agenda.verdicts_max or VERDICTS_MAX)
        moments = [(wake_at(due), due) for due in agenda.due]
        self._held = sorted(
            (UpcomingSchedule(at, due) for at, due in moments if at is not None), key=lambda held: held.at
        )
        self._read_by = self._read_at + LONGEST_REST.total_seconds()
        if agenda.more:
            self._read_in(RETRY_PAUSE)
        elif agenda.next_tick_at is not None:
            # All ticks of the slot are on the timer: the next reading is for later ones.
            self._read_before(max(agenda.next_tick_at, agenda.until + self._slot / 4))

    def _now(self) -> datetime:
        """The shard's time, extrapolated with the monotonic clock. Never ahead of it, so that no tick is early."""
        return self._shard_time + timedelta(seconds=self._clock.monotonic() - self._read_at)

    def _take_ripe(self) -> list[Due]:
        latest = self._now() - self._contention_delay
        ripe = [held.due for held in self._held if held.at <= latest]
        self._held = self._held[len(ripe) :]
        return ripe

    async def _refresh(self, ripe: Sequence[Due]) -> list[Due]:
        """The due schedules, read again where a job or another scheduler may have changed them since."""
        doubtful = {due.schedule.name: due for due in ripe if self._contention_delay or _depends_on_jobs(due)}
        if not doubtful:
            return list(ripe)
        read_by, self._read_by = self._read_by, self._clock.monotonic()
        agenda = await self._api.due(MIN_REST, READ_SCHEDULES)
        self._read_by = read_by
        anew = [due for due in agenda.due if due.schedule.name in doubtful]
        for gone in doubtful.keys() - {due.schedule.name for due in anew}:
            self._look_ahead(doubtful[gone])
        return [due for due in ripe if due.schedule.name not in doubtful] + anew

    async def _decide(self, ripe: Sequence[Due]) -> None:
        planned = _plan_all(ripe, self._now(), self._verdicts_max)
        won = [won for part in _parts(planned) for won in await self._apply(part)]
        if won:
            self._contention_delay = ZERO if 2 * sum(won) >= len(won) else CONTENTION_DELAY

    async def _apply(self, planned: Sequence[Planned]) -> list[bool]:
        # Until the call has succeeded, a reading is due: after an error everything is read again.
        read_by, self._read_by = self._read_by, self._clock.monotonic()
        applied = await self._api.apply([one.decision for one in planned])
        self._read_by = read_by
        for one, won in zip(planned, applied, strict=True):
            self._look_ahead(one.due, one.decision if won else None)
        return applied

    def _look_ahead(self, due: Due, won: Decision | None = None) -> None:
        """Plan a reading before the schedule's next tick, which may come before the slot is over."""
        schedule = due.schedule
        if won is not None:
            following = won.next_tick_at
        elif schedule.next_tick_at is None or counts_from_completion(schedule.when):
            following = self._now()
        else:
            following = next_tick(schedule.when, schedule.next_tick_at, end_at=schedule.end_at)
        if following is not None:
            self._read_before(following, ZERO if won else RETRY_PAUSE)

    def _read_before(self, at: datetime, pause: timedelta = ZERO) -> None:
        """Plan a reading half a slot before an instant, or after the pause if that is later."""
        self._read_in(max(pause, at - self._slot / 2 - self._now()))

    def _read_in(self, span: timedelta) -> None:
        self._read_by = min(self._read_by, self._clock.monotonic() + span.total_seconds())

    def _delay(self) -> timedelta:
        if self._changed:
            return ZERO
        until_read = timedelta(seconds=self._read_by - self._clock.monotonic())
        until_ripe = self._held[0].at + self._contention_delay - self._now() if self._held else until_read
        return max(ZERO, min(until_read, until_ripe))


def _plan_all(ripe: Sequence[Due], now: datetime, most: int) -> list[Planned]:
    """The decisions about these schedules. One that cannot be planned is logged and does not stop the others."""
    planned = []
    for due in ripe:
        try:
            decision = plan(due, now, most)
        except (Invalid, ValueError, OverflowError):
            logger.exception("schedule %s cannot be planned; change or delete it", due.schedule.name)
            continue
        if decision is not None:
            planned.append(Planned(due, decision))
    return planned


def _parts(planned: Sequence[Planned]) -> Iterator[list[Planned]]:
    """The decisions in order, in parts of bounded size."""
    part, verdicts = list[Planned](), 0
    for one in planned:
        if part and verdicts + len(one.decision.verdicts) > APPLY_VERDICTS:
            yield part
            part, verdicts = [], 0
        part.append(one)
        verdicts += len(one.decision.verdicts)
    if part:
        yield part


def _depends_on_jobs(due: Due) -> bool:
    """Whether the decision depends on jobs that have not ended."""
    return due.schedule.overlap is not Overlap.ALLOW or counts_from_completion(due.schedule.when)
