"""Bells: what happens in one process and is worth a look in the others, at once instead of at their next reading."""

import asyncio
import logging
import random
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.broker import SignalMessage
from penstock.engine.by_shard import keep
from penstock.model.clock import Clock, seconds, within
from penstock.model.errors import Unavailable
from penstock.model.ids import JobId, from_packed, to_packed
from penstock.model.job import BacklogKey, Job
from penstock.model.lifecycle import TERMINAL, Event, Move, State

if TYPE_CHECKING:
    from penstock.engine import Engine


logger = logging.getLogger("penstock.engine")

MIN_INTERVAL = timedelta(milliseconds=20)
"""The shortest time between two rings of one bell: what comes in between goes with the next."""

WORK_MIN_INTERVAL = timedelta(milliseconds=100)
"""For queues that got work: the bell that would be rung most often, and is worth least to those who are awake."""

UNKNOWN_QUEUES = frozenset({""})
"""In place of the queues that got work, where rings may have been missed."""

RETRY_PAUSE = timedelta(seconds=1)


class Signal(StrEnum):
    """What can be rung. All of them are hints: whoever misses one looks again a little later by itself."""

    BACKLOG = "backlog"
    NOTICES = "notices"
    SCHEDULES = "schedules"
    CANCELS = "cancels"
    ENDED = "ended"
    WORK = "work"
    LINE = "line"


class Signals:
    """Rings for other processes, and does here what their rings ask for. Silent until it is asked to `listen`.

    With a broker inside the process there is nobody else to ring for.
    """

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._listening = False
        self._ended: list[JobId] = []
        self._work: set[str] = set()
        self._backlogs: set[BacklogKey] = set()
        self._waiting: set[Signal] = set()
        self.cancels = asyncio.Event()

    def publish(self, bell: Signal) -> None:
        """Soon, and once however often it is asked for meanwhile."""
        if self._listening and bell not in self._waiting:
            self._waiting.add(bell)
            keep(asyncio.ensure_future(self._send(bell)))

    def publish_work(self, queues: frozenset[str]) -> None:
        """Tell the others in which queues jobs have become due."""
        if self._listening:
            self._work |= queues
            self.publish(Signal.WORK)

    def publish_backlog(self, lines: frozenset[BacklogKey]) -> None:
        """Tell the others which lines go on behind the window."""
        if self._listening:
            self._backlogs |= lines
            self.publish(Signal.LINE)

    def publish_events(self, events: Sequence[Event]) -> None:
        """Tell the others which jobs have ended and which were asked to stop."""
        if not self._listening:
            return
        if ended := [event.job for event in events if event.after in TERMINAL]:
            self._ended += ended
            self.publish(Signal.ENDED)
        if any(event.move is Move.CANCEL and event.before is State.RUNNING for event in events):
            self.publish(Signal.CANCELS)

    async def listen(self) -> timedelta:
        """Do what rings ask for, until the broker is closed or lost; how long to wait before listening again."""
        self._listening = True
        async for rung in self._engine.broker.listen(tuple(Signal)):
            try:
                self._receive(rung)
            except (ValueError, struct.error) as error:
                # Of another version perhaps: a hint that is not understood is a hint that was missed.
                logger.debug("a ring of the bell %s cannot be read: %s", rung.signal, error)
        return RETRY_PAUSE

    async def _send(self, bell: Signal) -> None:
        await self._engine.clock.sleep(WORK_MIN_INTERVAL if bell is Signal.WORK else MIN_INTERVAL)
        self._waiting.discard(bell)
        try:
            await self._engine.broker.send_signal(bell, self._message(bell))
        except Unavailable as error:
            logger.debug("nobody heard the bell %s: %s", bell, error)

    def _message(self, bell: Signal) -> bytes:
        message = b""
        if bell is Signal.ENDED:
            message, self._ended = to_packed(self._ended), []
        elif bell is Signal.WORK:
            message, self._work = _encode(self._work), set()
        elif bell is Signal.LINE:
            message, self._backlogs = _encode(self._backlogs), set()
        return message

    def _receive(self, rung: SignalMessage) -> None:
        match rung.signal:
            case Signal.BACKLOG:
                self._engine.tickets.wake.set()
            case Signal.NOTICES:
                self._engine.catalog.forget()
                self._engine.tickets.pauses_changed()
            case Signal.SCHEDULES:
                self._engine.changes.receive()
            case Signal.CANCELS:
                self.cancels.set()
            case Signal.ENDED:
                self._engine.job_waiters.wake(from_packed(rung.message))
                self._engine.changes.observe_ended(from_packed(rung.message))
            case Signal.WORK:
                self._engine.arrivals.receive(_queues(rung.message) if rung.message else UNKNOWN_QUEUES)
            case Signal.LINE:
                self._engine.tickets.receive_backlog(_lines(rung.message or b"[]"))


_encode = msgspec.json.Encoder().encode
_queues = msgspec.json.Decoder(frozenset[str]).decode
_lines = msgspec.json.Decoder(list[BacklogKey]).decode


ArrivalListener = Callable[[frozenset[str]], None]


class Arrivals:
    """Tells whoever starts workers. A hint: whoever misses one sees the jobs at the next look into the store."""

    def __init__(self) -> None:
        self._listeners: list[ArrivalListener] = []
        self.on_arrival: ArrivalListener = lambda _: None

    def listen(self, listener: ArrivalListener) -> Callable[[], None]:
        """Call this with the names of queues; what comes back ends it."""
        self._listeners.append(listener)

        def end() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return end

    def observe(self, events: Sequence[Event]) -> None:
        self.publish(frozenset(event.queue for event in events if event.after is State.QUEUED))

    def publish(self, queues: frozenset[str]) -> None:
        """It happened here."""
        if queues:
            self.receive(queues)
            self.on_arrival(queues)

    def receive(self, queues: frozenset[str]) -> None:
        """It happened, here or elsewhere."""
        for listener in self._listeners:
            listener(queues)


AWAITED_JOBS = 10_000


class ScheduleSignals:
    """A number that grows with each change, and the jobs whose end is such a change.

    A hint, like a ticket: a change that another process made and no bell told of is seen at the next reading.
    """

    def __init__(self, rng: random.Random) -> None:
        self._epoch = f"{rng.getrandbits(48):012x}"
        self._count = 0
        self._changed = asyncio.Event()
        self._closed = False
        self.on_note: Callable[[], None] = lambda: None
        self._awaited: dict[JobId, None] = {}

    @property
    def seen(self) -> str:
        """A name for the present state; another process, or the next life of this one, never gives the same."""
        return f"{self._epoch}-{self._count}"

    def publish(self) -> None:
        """Something was changed here: everyone who waits looks again, here and by a bell elsewhere."""
        self.receive()
        self.on_note()

    def receive(self) -> None:
        """Something was changed elsewhere."""
        self._count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def await_end(self, jobs: Iterable[JobId]) -> None:
        """The end of these jobs is a change: a schedule waits for it."""
        self._awaited.update(dict.fromkeys(jobs))
        while len(self._awaited) > AWAITED_JOBS:
            del self._awaited[next(iter(self._awaited))]

    def observe(self, events: Sequence[Event]) -> None:
        if self._awaited:
            self.observe_ended(event.job for event in events if event.after in TERMINAL)

    def observe_ended(self, jobs: Iterable[JobId]) -> None:
        """It is a change where one of these is awaited."""
        if not self._awaited:
            return
        ended = [job for job in jobs if job in self._awaited]
        for job in ended:
            self._awaited.pop(job, None)
        if ended:
            self.receive()

    async def wait_for_change(self, seen: str, span: timedelta) -> None:
        """Return once the present state is not `seen` any more, or `span` has passed."""
        if seen == self.seen and not self._closed:
            await within(span, self._changed.wait())

    def close(self) -> None:
        """Let everyone go who waits, now and from now on."""
        self._closed = True
        self._changed.set()


RECHECK_INTERVAL = timedelta(seconds=1)
"""How soon an end is seen that no bell told of."""


class JobWaiters:
    """Who waits for which job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: defaultdict[JobId, list[asyncio.Event]] = defaultdict(list)

    def observe(self, events: Sequence[Event]) -> None:
        if self._waiting:
            self.wake(event.job for event in events if event.after in TERMINAL)

    def wake(self, jobs: Iterable[JobId]) -> None:
        """Wake who waits for these."""
        if self._waiting:
            for job in jobs:
                for waiter in self._waiting.get(job, ()):
                    waiter.set()

    async def wait_until_ended(self, job: JobId, read: Callable[[], Awaitable[Job]], span: timedelta) -> Job:
        """The job as `read` gives it, once it has ended or `span` has passed."""
        ended = asyncio.Event()
        self._waiting[job].append(ended)
        deadline = self._clock.monotonic() + span.total_seconds()
        try:
            while not (found := await read()).ended and (left := deadline - self._clock.monotonic()) > 0:
                await _set_within(ended, min(RECHECK_INTERVAL, seconds(left)))
            return found
        finally:
            self._leave(job, ended)

    def _leave(self, job: JobId, waiter: asyncio.Event) -> None:
        self._waiting[job].remove(waiter)
        if not self._waiting[job]:
            del self._waiting[job]


async def _set_within(event: asyncio.Event, span: timedelta) -> None:
    try:
        async with asyncio.timeout(span.total_seconds()):
            await event.wait()
    except TimeoutError:
        return


class WakeUps:
    """Each loop waits on an event of its own, so that none clears it before another has seen it."""

    def __init__(self) -> None:
        self._events: list[asyncio.Event] = []

    def event(self) -> asyncio.Event:
        """One more loop's own."""
        event = asyncio.Event()
        self._events.append(event)
        return event

    def drop(self, event: asyncio.Event) -> None:
        """Its loop has ended."""
        self._events.remove(event)

    def set(self) -> None:
        for event in self._events:
            event.set()
