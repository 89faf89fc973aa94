"""Tick planning: what becomes of a schedule's ticks. Pure: from one reading of a schedule and the time to a decision.

Every tick up to now gets exactly one verdict, in order: first its lateness is judged (misfire), then the jobs that have
not ended (overlap). The next tick follows from the persisted one, never from now, so every scheduler plans the same.
"""

from datetime import datetime, timedelta
from itertools import chain, islice, takewhile
from typing import assert_never

from penstock.model.ids import JobId
from penstock.model.schedule import Decision, Due, Misfire, Overlap, Schedule, Verdict
from penstock.model.ticks import counts_from_completion, first_tick, following, jittered, next_tick

VERDICTS_MAX = 1000
"""Most verdicts of one decision, so that one write stays small; the rest follows in further decisions."""

NOT_ENDED = "the job before it has not ended"
WAITING = "one is waiting already"


def plan(due: Due, now: datetime, most: int = VERDICTS_MAX) -> Decision | None:
    """The verdicts of all ticks that are due, at most `most`, and what comes next; None if nothing is due.

    There is something to decide exactly from `wake_at` on. `now` is the shard's clock.
    """
    woken_at = wake_at(due)
    if woken_at is None or now < woken_at:
        return None
    if _awaits_count(due):
        return _decision(due, _counted(due))
    ticks = _due_ticks(due.schedule, now, most)
    return _decide(due, ticks, _misfired(due.schedule, ticks, now, most), now, most)


def wake_at(due: Due) -> datetime | None:
    """When there is something to decide next; None: not before a job of the schedule ends or the schedule changes."""
    schedule = due.schedule
    if schedule.paused:
        return None
    if schedule.pending_tick_at is not None and _may_leave(due):
        return schedule.pending_tick_at
    if schedule.next_tick_at is not None:
        return _due_at(schedule, schedule.next_tick_at)
    return _counted_from(schedule, due.completed_at) if _awaits_count(due) and _counted(due) is not None else None


def _decide(due: Due, ticks: list[datetime], misfired: dict[datetime, str], now: datetime, most: int) -> Decision:
    sequence = _TickSequence(due)
    decided = ticks[: most - len(sequence.verdicts)]
    for tick in decided:
        sequence.take(tick, misfired.get(tick))
    undecided = ticks[len(decided) : len(decided) + 1]
    next_at = undecided[0] if undecided else _next_tick(due.schedule, decided, misfired, now)
    return _decision(due, next_at, sequence)


class _TickSequence:
    """The ticks of one decision, in order. A job given to one of them has not ended for the later ones."""

    def __init__(self, due: Due) -> None:
        self.verdicts: list[Verdict] = []
        self.cancel: tuple[JobId, ...] = ()
        self.pending = due.schedule.pending_tick_at
        self._overlap = due.schedule.overlap
        self._before = due.active
        self._busy = bool(due.active)
        if self.pending is not None and _may_leave(due):
            waited, self.pending = self.pending, None
            self._judge(waited)

    def take(self, tick: datetime, misfired: str | None) -> None:
        if misfired is None:
            self._judge(tick)
        else:
            self._skip(tick, misfired)

    def _judge(self, tick: datetime) -> None:
        match self._overlap:
            case Overlap.ALLOW:
                self._run(tick)
            case Overlap.SKIP:
                self._skip(tick, NOT_ENDED) if self._busy else self._run(tick)
            case Overlap.QUEUE_ONE:
                self._queue(tick) if self._busy else self._run(tick)
            case Overlap.CANCEL_PREVIOUS:
                self._replace(tick)
            case _:
                assert_never(self._overlap)

    def _run(self, tick: datetime) -> None:
        self.verdicts.append(Verdict(tick))
        self._busy = True

    def _skip(self, tick: datetime, reason: str) -> None:
        self.verdicts.append(Verdict(tick, reason))

    def _queue(self, tick: datetime) -> None:
        if self.pending is None:
            self.pending = tick
        else:
            self._skip(tick, WAITING)

    def _replace(self, tick: datetime) -> None:
        """Of several ticks due at once only the last gets a job: the others would be cancelled before they started."""
        if self.verdicts and self.verdicts[-1].skipped is None:
            self.verdicts[-1] = Verdict(self.verdicts[-1].at, f"replaced by the tick at {tick.isoformat()}")
        self.cancel = self._before
        self._run(tick)


def _due_ticks(schedule: Schedule, now: datetime, most: int) -> list[datetime]:
    """The ticks due by now, in order: those that one decision may hold, and those that their verdicts depend on."""
    first = schedule.next_tick_at
    if first is None or not _is_valid(schedule, first):
        return []
    ticks = chain([first], following(schedule.when, first, end_at=schedule.end_at))
    due = takewhile(lambda tick: _due_at(schedule, tick) <= now, ticks)
    if counts_from_completion(schedule.when):
        return _until_one_runs(schedule, list(islice(due, most)), now)
    return list(islice(due, most + _runs_of_missed(schedule)))


def _until_one_runs(schedule: Schedule, ticks: list[datetime], now: datetime) -> list[datetime]:
    """The ticks up to the first that runs: the one after it counts from a completion, which is not known yet."""
    skipped = sum(_missed(schedule, tick, now) for tick in ticks) if schedule.misfire is Misfire.SKIP else 0
    return ticks[: skipped + 1]


def _is_valid(schedule: Schedule, tick: datetime) -> bool:
    """False for a tick beyond the end, and for one counted a second time from the same completion."""
    if schedule.end_at is not None and tick > schedule.end_at:
        return False
    again = schedule.last_tick_at is not None and tick <= schedule.last_tick_at
    return not (again and counts_from_completion(schedule.when))


def _misfired(schedule: Schedule, ticks: list[datetime], now: datetime, most: int) -> dict[datetime, str]:
    """The missed ticks that get no job, each with the reason."""
    missed = [tick for tick in ticks if _missed(schedule, tick, now)]
    skipped = missed[: max(0, len(missed) - _runs_of_missed(schedule))]
    # More than one decision may hold: the latest of them is not known yet.
    latest = missed[-1].isoformat() if 0 < len(missed) <= most else "a later one"
    return {tick: _misfire_reason(schedule, tick, latest, now) for tick in skipped}


def _misfire_reason(schedule: Schedule, tick: datetime, latest: str, now: datetime) -> str:
    match schedule.misfire:
        case Misfire.SKIP:
            late, grace = _describe(now - _latest_due_at(schedule, tick)), _describe(schedule.misfire_grace)
            return f"missed by {late}, beyond the grace of {grace}"
        case Misfire.RUN_ONCE:
            return f"coalesced into {latest}"
        case Misfire.RUN_ALL:
            return f"over the cap of {schedule.misfire_cap}"
        case _:
            assert_never(schedule.misfire)


def _runs_of_missed(schedule: Schedule) -> int:
    """How many of the missed ticks run; these are the newest ones."""
    return {Misfire.SKIP: 0, Misfire.RUN_ONCE: 1, Misfire.RUN_ALL: schedule.misfire_cap}[schedule.misfire]


def _missed(schedule: Schedule, tick: datetime, now: datetime) -> bool:
    return now > _latest_due_at(schedule, tick) + schedule.misfire_grace


def _due_at(schedule: Schedule, tick: datetime) -> datetime:
    return jittered(tick, schedule.name, schedule.jitter)


def _latest_due_at(schedule: Schedule, tick: datetime) -> datetime:
    # Ticks are decided in order: one with little jitter may wait for an earlier one with more. That is not late.
    return tick + schedule.jitter


def _next_tick(
    schedule: Schedule, decided: list[datetime], misfired: dict[datetime, str], now: datetime
) -> datetime | None:
    """The tick after those decided; None if it counts from a completion that has not come."""
    if not decided:
        planned = schedule.next_tick_at
        return planned if planned is not None and _due_at(schedule, planned) > now else None
    if counts_from_completion(schedule.when) and decided[-1] not in misfired:
        return None
    return next_tick(schedule.when, decided[-1], end_at=schedule.end_at)


def _may_leave(due: Due) -> bool:
    """Whether the pending tick may run: the jobs before it have ended, or the overlap policy was changed."""
    return not due.active or due.schedule.overlap is not Overlap.QUEUE_ONE


def _awaits_count(due: Due) -> bool:
    """Whether the next tick is to be counted from a completion, which has come."""
    schedule = due.schedule
    known = schedule.next_tick_at is not None or schedule.pending_tick_at is not None
    return counts_from_completion(schedule.when) and not known and not due.active


def _counted(due: Due) -> datetime | None:
    """The tick after a completion. It is stored before it is decided, so that the store can compare it."""
    schedule = due.schedule
    since = _counted_from(schedule, due.completed_at)
    begin = first_tick if schedule.last_tick_at is None and due.completed_at is None else next_tick
    return begin(schedule.when, since, start_at=schedule.start_at, end_at=schedule.end_at)


def _counted_from(schedule: Schedule, completed_at: datetime | None) -> datetime:
    """The completion to count from; for a tick whose job is gone the tick itself, for a new schedule its creation."""
    return max(at for at in (completed_at, schedule.last_tick_at, schedule.created_at) if at is not None)


def _decision(due: Due, next_tick_at: datetime | None, sequence: _TickSequence | None = None) -> Decision:
    return Decision(
        name=due.schedule.name,
        version=due.schedule.version,
        expected_tick_at=due.schedule.next_tick_at,
        expected_pending_at=due.schedule.pending_tick_at,
        next_tick_at=next_tick_at,
        pending_tick_at=sequence.pending if sequence else None,
        verdicts=tuple(sequence.verdicts) if sequence else (),
        cancel=sequence.cancel if sequence else (),
    )


def _describe(span: timedelta) -> str:
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if span.total_seconds() >= 2 * unit:
            return f"{span.total_seconds() // unit:.0f} {name}"
    return f"{span.total_seconds():.3g} s"
