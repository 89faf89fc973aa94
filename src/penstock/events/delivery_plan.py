"""One round of a relay: which events are sent next, what became of them, and what is written in the end. Pure."""

import random
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from penstock.events.circuit import OPENS_AFTER, Circuit
from penstock.events.lanes import EventWindow, HeldEvent, Lanes
from penstock.events.notifier import Delivered, Delivery, Gone, PartlyDelivered, Rejected, Undelivered, Unreachable
from penstock.events.retries import pause_after
from penstock.model.events import EventId, pack_event
from penstock.model.ids import JobId
from penstock.model.journal import DeliveryRecord, Parked, ParkedState, Position, RelayState, RelayWrite

GONE: Final = 410
TOO_MANY_REQUESTS: Final = 429


class FailedAttempt(Struct, frozen=True):
    """What came of an event that was not delivered: its attempts so far, and when it is tried again."""

    attempts: int
    due_at: datetime
    error: str


class DeliveryRound:
    """The state of one round: a window of new events, the waiting ones of their jobs, and those that are due."""

    def __init__(
        self, window: EventWindow, waiting: Sequence[Parked], circuit: Circuit, now: datetime, rng: random.Random
    ) -> None:
        self.circuit = circuit
        self.gone: str | None = None
        self.log = DeliveryLog()
        self._window = window
        self._lanes = Lanes(waiting, window.events, now)
        self._rng = rng
        self._settled: set[EventId] = set()
        self._failed: dict[EventId, FailedAttempt] = {}
        self._dead: list[Parked] = []
        self._unparked: list[tuple[JobId, int]] = []
        self._in_flight = 0
        self._probing = False
        self._in_doubt = False
        if circuit.failures:
            self._lanes.begin_with(max(circuit.failures - OPENS_AFTER, 0))

    @property
    def all_sent(self) -> bool:
        """Whether all that may be sent was, so that the relay may go on after the window."""
        return not self.circuit.open and self.gone is None and self._lanes.all_sent and not self._in_flight

    def take(self, now: datetime, most: int, in_flight: int) -> list[HeldEvent]:
        """The events of the next message, at most `most`; none while nothing may be sent."""
        limit = 1 if self.circuit.open else in_flight
        if self.gone is not None or self._in_flight >= limit or not self.circuit.admits(now):
            return []
        taken = self._lanes.take(most)
        self._in_flight += bool(taken)
        self._probing = self.circuit.open and bool(taken)
        return taken

    def settle(self, events: Sequence[HeldEvent], delivery: Delivery, now: datetime) -> None:
        """Note what came of a message."""
        self._in_flight -= 1
        if isinstance(delivery, PartlyDelivered):
            self._settle_each(events, delivery, now)
            return
        self.log.note(events, delivery, now)
        match delivery:
            case Delivered():
                self._succeed(events)
            case Gone(detail):
                self.gone = detail or "the sink answered 410 Gone"
            case Rejected() | Unreachable():
                self._fail(events, delivery, now)

    def _settle_each(self, events: Sequence[HeldEvent], delivery: PartlyDelivered, now: datetime) -> None:
        """Note a message of which the sink took a part: that shows that it is well, whatever it refused."""
        taken = [one for one in events if one.event.id in delivery.delivered]
        self.log.note(taken, Delivered(delivery.status, delivery.took), now)
        failed = [one for one in events if one.event.id in delivery.failed]
        for one in failed:
            outcome = delivery.failed[one.event.id]
            self.log.note([one], outcome, now)
            wish = outcome.retry_after if isinstance(outcome, Rejected) else None
            self._fail_one(one, _error_of(outcome), now, wish)
        self._succeed(taken, {one.event.job for one in failed})

    def _succeed(self, events: Sequence[HeldEvent], blocked: Collection[JobId] = ()) -> None:
        self.circuit = self.circuit.after_success()
        self._in_doubt = False
        self._remove(events, blocked)

    def conclude(self, now: datetime) -> RelayWrite:
        """What to write: nothing that was delivered is before the position's end again, and nothing else is lost."""
        passed = self._passed()
        position = self._window.end if passed == len(self._window.events) else self._window.events[passed].start
        kept = {one.event.id for one in self._window.events[passed:]}
        return RelayWrite(
            state=RelayState(position=position, failures=self.circuit.failures, retry_at=self.circuit.probe_at),
            parked=[*self._dead, *self._to_park(kept, now)],
            unparked=self._unparked,
            log=self.log.records(),
        )

    def _remove(self, events: Sequence[HeldEvent], blocked: Collection[JobId]) -> None:
        self._settled.update(one.event.id for one in events)
        self._unparked += [(one.event.job, one.event.version) for one in events if one.parked is not None]
        self._lanes.remove(events, blocked)

    def _fail(self, events: Sequence[HeldEvent], delivery: Undelivered, now: datetime) -> None:
        """Neither a refusal of an event that was refused before, nor one that was under way at the circuit's opening,
        says anything new about the sink; a refusal does if a new event has failed just before.

        New events go first from then on: they tell whether it is down, and that spares the others an attempt.
        """
        wish = delivery.retry_after if isinstance(delivery, Rejected) else None
        is_news = isinstance(delivery, Unreachable) or not events[0].attempts or self._in_doubt
        if self._probing or (is_news and not self.circuit.open):
            self.circuit = self.circuit.after_failure(now, self._rng, wish)
            self._in_doubt = True
        self._lanes.begin_with(0)
        if wish and isinstance(delivery, Rejected) and delivery.status == TOO_MANY_REQUESTS:
            self.circuit = Circuit(max(self.circuit.failures, OPENS_AFTER), now + wish)
        for one in events:
            self._fail_one(one, _error_of(delivery), now, wish)

    def _fail_one(self, one: HeldEvent, error: str, now: datetime, wish: timedelta | None) -> None:
        attempts = one.attempts + 1
        pause = pause_after(attempts, self._rng, wish)
        if pause is not None:
            self._failed[one.event.id] = FailedAttempt(attempts, now + pause, error)
            return
        dead = Parked(
            job=one.event.job,
            version=one.event.version,
            event=pack_event(one.event),
            state=ParkedState.DEAD,
            attempts=attempts,
            error=error,
        )
        self._dead.append(dead)
        self._settled.add(one.event.id)
        self._lanes.remove([one])

    def _passed(self) -> int:
        """How many events of the window the position may pass; those of them that are not settled are parked.

        While the sink is down, what failed stays in the journal and is not parked, unless a later event was delivered.
        """
        events = self._window.events
        if self.all_sent:
            return len(events)
        done = self._settled if self.circuit.open or self.gone is not None else self._settled | self._failed.keys()
        return max((number for number, one in enumerate(events, 1) if one.event.id in done), default=0)

    def _to_park(self, kept: set[EventId], now: datetime) -> Iterator[Parked]:
        """The rows of events that are still undelivered, where they are new or changed. `kept` stay in the journal."""
        for lane in self._lanes.by_job.values():
            for number, one in enumerate(lane):
                if one.parked is None and one.event.id in kept:
                    break
                row = self._row_of(one, now, first=number == 0)
                if row != one.parked:
                    yield row

    def _row_of(self, one: HeldEvent, now: datetime, *, first: bool) -> Parked:
        row = one.parked or Parked(job=one.event.job, version=one.event.version, event=pack_event(one.event))
        failed = self._failed.get(one.event.id)
        if failed is not None:
            row = replace(row, attempts=failed.attempts, due_at=failed.due_at, error=failed.error)
        return replace(row, due_at=(row.due_at or now) if first else None)


class DeliveryLog:
    """The records of a round: failures each, and successes in a row as one, with the median of what they took."""

    def __init__(self) -> None:
        self._rows: list[list[DeliveryRecord]] = []

    def note(self, events: Sequence[HeldEvent], delivery: "WholeDelivery", now: datetime) -> None:
        record = _record_of(events, delivery, now)
        if self._rows and record.delivered and self._rows[-1][0].delivered:
            self._rows[-1].append(record)
        else:
            self._rows.append([record])

    def records(self) -> Sequence[DeliveryRecord]:
        return [_merged(row) for row in self._rows]


WholeDelivery: TypeAlias = Delivered | Rejected | Gone | Unreachable
"""What came of events that have one fate."""


def _merged(row: Sequence[DeliveryRecord]) -> DeliveryRecord:
    took = median(one.took.total_seconds() for one in row)
    events = sum(one.events for one in row)
    return replace(row[-1], first=row[0].first, events=events, took=timedelta(seconds=took))


def _record_of(events: Sequence[HeldEvent], delivery: WholeDelivery, now: datetime) -> DeliveryRecord:
    delivered = isinstance(delivery, Delivered)
    return DeliveryRecord(
        at=now,
        delivered=delivered,
        first=events[0].event.id,
        last=events[-1].event.id,
        events=len(events),
        attempt=events[0].attempts + 1,
        status=_status_of(delivery),
        detail=None if isinstance(delivery, Delivered) else delivery.detail,
        took=delivery.took,
    )


def _status_of(delivery: WholeDelivery) -> int | None:
    match delivery:
        case Delivered(status) | Rejected(status):
            return status
        case Gone():
            return GONE
        case Unreachable():
            return None


def _error_of(delivery: Undelivered) -> str:
    return f"{delivery.status}: {delivery.detail}" if isinstance(delivery, Rejected) else delivery.detail


def missed_record(position: Position, oldest: int, since: datetime | None, now: datetime) -> DeliveryRecord:
    """The record of entries that were gone before the relay could read them: how many events they had is not known."""
    kept = "nothing is kept now" if since is None else f"the oldest that is kept is of {since.isoformat()}"
    detail = f"missed: entries {position.number} to {oldest - 1} of the journal are past their retention; {kept}"
    return DeliveryRecord(at=now, delivered=False, first="", last="", events=0, detail=detail)
