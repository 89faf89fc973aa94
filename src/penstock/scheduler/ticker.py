"""The ticker: reads what falls due in the coming slot, keeps it on a timer, and decides each tick at its instant.

Any number may run. Everyone tries, the shard's guard lets one of them through, and a stale answer is normal. Time is
the shard's: its clock comes with each reading, and only the span since then is measured here, monotonically.
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
from penstock.scheduler.tick_plan import plan, wake_at

logger = logging.getLogger("penstock.scheduler")

READ_SCHEDULES = 5000
APPLY_VERDICTS = 2000
LONGEST_REST = timedelta(seconds=5)
"""How soon a change is seen that nobody told us of: made by another server, or a job that ended there."""

LISTEN_FOR = timedelta(seconds=20)
RETRY_PAUSE = timedelta(milliseconds=20)
"""Between two readings where another scheduler was faster, so that those who lost do not crowd the shard."""

CONTENTION_DELAY = timedelta(milliseconds=20)
"""How long after the instant a scheduler looks that was second the last time: work for it only if the first is gone."""

ZERO = timedelta(0)
MIN_REST = timedelta(milliseconds=1)


class UpcomingSchedule(Struct, frozen=True):
    """A schedule on the timer."""

    at: datetime
    due: Due


class Planned(Struct, frozen=True):
    """What a schedule is to become, and what it was read as."""

    due: Due
    decision: Decision


class Ticker:
    """`step` decides what is ripe and says when to step again; `follow_changes` wakes it early."""

    def __init__(self, timekeeper: SchedulerApi, slot: timedelta, clock: Clock) -> None:
        self.wake = asyncio.Event()
        self._timekeeper = timekeeper
        self._slot = slot
        self._clock = clock
        self._heard: str | None = None
        self._changed = False
        self._courtesy = ZERO
        self._held: list[UpcomingSchedule] = []
        self._shown_at, self._shown = clock.monotonic(), EPOCH
        self._read_by = self._shown_at

    async def step(self) -> timedelta:
        fresh = self._changed or self._clock.monotonic() >= self._read_by
        if fresh:
            await self._read()
        if ripe := self._take_ripe():
            await self._decide(ripe if fresh else await self._refresh(ripe))
        return self._rest()

    async def follow_changes(self) -> timedelta:
        """Wait until something has changed, and wake the step."""
        agenda = await self._timekeeper.due(MIN_REST, 1, LISTEN_FOR, self._heard)
        if agenda.seen == self._heard:
            return RETRY_PAUSE
        self._heard, self._changed = agenda.seen, True
        self.wake.set()
        return ZERO

    async def _read(self) -> None:
        # First, so that what changes during the reading, or makes it fail, is read again.
        self._changed, self._read_by = False, self._clock.monotonic()
        agenda = await self._timekeeper.due(self._slot, READ_SCHEDULES)
        self._shown_at, self._shown = self._clock.monotonic(), agenda.now
        moments = [(wake_at(due), due) for due in agenda.due]
        self._held = sorted(
            (UpcomingSchedule(at, due) for at, due in moments if at is not None), key=lambda held: held.at
        )
        self._read_by = self._shown_at + LONGEST_REST.total_seconds()
        if agenda.more:
            self._read_in(RETRY_PAUSE)
        elif agenda.next_tick_at is not None:
            # What the slot holds is on the timer: the next reading is for what comes after it.
            self._read_before(max(agenda.next_tick_at, agenda.until + self._slot / 4))

    def _now(self) -> datetime:
        """The shard's clock, or a little less: never more, so that nothing is early."""
        return self._shown + timedelta(seconds=self._clock.monotonic() - self._shown_at)

    def _take_ripe(self) -> list[Due]:
        latest = self._now() - self._courtesy
        ripe = [held.due for held in self._held if held.at <= latest]
        self._held = self._held[len(ripe) :]
        return ripe

    async def _refresh(self, ripe: Sequence[Due]) -> list[Due]:
        """What was read a while ago, and anew where a job or another scheduler may have changed it in between."""
        doubtful = {due.schedule.name: due for due in ripe if self._courtesy or _heeds_jobs(due)}
        if not doubtful:
            return list(ripe)
        read_by, self._read_by = self._read_by, self._clock.monotonic()
        agenda = await self._timekeeper.due(MIN_REST, READ_SCHEDULES)
        self._read_by = read_by
        anew = [due for due in agenda.due if due.schedule.name in doubtful]
        for gone in doubtful.keys() - {due.schedule.name for due in anew}:
            self._look_ahead(doubtful[gone])
        return [due for due in ripe if due.schedule.name not in doubtful] + anew

    async def _decide(self, ripe: Sequence[Due]) -> None:
        planned = _planned(ripe, self._now())
        won = [won for part in _parts(planned) for won in await self._apply(part)]
        if won:
            self._courtesy = ZERO if 2 * sum(won) >= len(won) else CONTENTION_DELAY

    async def _apply(self, planned: Sequence[Planned]) -> list[bool]:
        # Until they are carried out, nothing is: whatever goes wrong, it is all read again.
        read_by, self._read_by = self._read_by, self._clock.monotonic()
        applied = await self._timekeeper.apply([one.decision for one in planned])
        self._read_by = read_by
        for one, won in zip(planned, applied, strict=True):
            self._look_ahead(one.due, one.decision if won else None)
        return applied

    def _look_ahead(self, due: Due, won: Decision | None = None) -> None:
        """Read again before the schedule's following tick, which may come before the slot is over."""
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
        """Read half a slot before an instant, or after the pause where that is later."""
        self._read_in(max(pause, at - self._slot / 2 - self._now()))

    def _read_in(self, span: timedelta) -> None:
        self._read_by = min(self._read_by, self._clock.monotonic() + span.total_seconds())

    def _rest(self) -> timedelta:
        if self._changed:
            return ZERO
        until_read = timedelta(seconds=self._read_by - self._clock.monotonic())
        until_ripe = self._held[0].at + self._courtesy - self._now() if self._held else until_read
        return max(ZERO, min(until_read, until_ripe))


def _planned(ripe: Sequence[Due], now: datetime) -> list[Planned]:
    """Every decision that can be made. One that cannot be understood any more stands still, and no other does."""
    planned = []
    for due in ripe:
        try:
            decision = plan(due, now)
        except (Invalid, ValueError, OverflowError):
            logger.exception("schedule %s cannot be planned; change or delete it", due.schedule.name)
            continue
        if decision is not None:
            planned.append(Planned(due, decision))
    return planned


def _parts(planned: Sequence[Planned]) -> Iterator[list[Planned]]:
    """The decisions in order, so many at a time that one call stays small."""
    part, verdicts = list[Planned](), 0
    for one in planned:
        if part and verdicts + len(one.decision.verdicts) > APPLY_VERDICTS:
            yield part
            part, verdicts = [], 0
        part.append(one)
        verdicts += len(one.decision.verdicts)
    if part:
        yield part


def _heeds_jobs(due: Due) -> bool:
    """True when jobs that have not ended weigh in the decision."""
    return due.schedule.overlap is not Overlap.ALLOW or counts_from_completion(due.schedule.when)
