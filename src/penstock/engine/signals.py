"""Signals: pub/sub wake-ups between processes. What happens in one and concerns the others at once is published.

A signal has local actions. `publish` runs them and tells the other processes, where the same actions run. Every signal
is a hint: a process that misses one finds the same in the store a little later. `Signals.events` has the moves that
this process made durable; it is local, and the signals about jobs are derived from it.

The table in `parts.py` names what each signal causes. To add a signal, add an attribute to `Signals`, and a row to the
table.
"""

import asyncio
import logging
import random
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Generic, TypeVar

import msgspec

from penstock.broker import Broker
from penstock.model.clock import Clock, seconds, within
from penstock.model.errors import Unavailable
from penstock.model.ids import JobId, from_packed, to_packed
from penstock.model.job import BacklogKey, Job, NewJob
from penstock.model.lifecycle import TERMINAL, Event, Move, State

logger = logging.getLogger("penstock.engine")

MIN_INTERVAL = timedelta(milliseconds=20)
"""The shortest time between two messages of one signal: what is published in between is sent together."""

WORK_MIN_INTERVAL = timedelta(milliseconds=100)
"""For queues that got work: the most frequent signal, and of little use to autoscalers that are awake."""

UNKNOWN_QUEUES = frozenset({""})
"""Published in place of the queues that got work, after messages may have been missed."""

RETRY_PAUSE = timedelta(seconds=1)

Payload = TypeVar("Payload")
Action = Callable[[Payload], None]


class Actions(Generic[Payload]):
    """Functions of this process that are called in the order in which they subscribed."""

    def __init__(self) -> None:
        self._actions: list[Action[Payload]] = []

    def subscribe(self, action: Action[Payload]) -> Callable[[], None]:
        """Have `action` called from now on; the function returned ends that."""
        self._actions.append(action)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._actions.remove(action)

        return unsubscribe

    def run(self, payload: Payload) -> None:
        for action in self._actions:
            action(payload)


class _Outbox:
    """Sends signals to other processes. Closed until this process listens: without a shared broker there are none."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._tasks: set[asyncio.Future[None]] = set()
        self.is_open = False
        self.prompt: frozenset[str] | None = None
        """The signals that are sent, and at once; None: all, each after a while."""

    def send_later(self, name: str, delay: timedelta, take_message: Callable[[], bytes]) -> None:
        task = asyncio.ensure_future(self._send(name, delay, take_message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, name: str, delay: timedelta, take_message: Callable[[], bytes]) -> None:
        if self.prompt is None:
            await self._clock.sleep(delay)
        try:
            await self._broker.send_signal(name, take_message())
        except Unavailable as error:
            logger.debug("the signal %s was not sent: %s", name, error)

    def takes(self, name: str) -> bool:
        return self.is_open and (self.prompt is None or name in self.prompt)

    async def flush(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)


class Signal(Actions[Payload]):
    """One signal: its local actions, and its messages to other processes.

    `encode` makes one message of all payloads since the last one; `decode` also gets the empty message, which stands
    for messages that were missed.
    """

    def __init__(
        self,
        outbox: _Outbox,
        name: str,
        encode: Callable[[Sequence[Payload]], bytes],
        decode: Callable[[bytes], Payload],
        min_interval: timedelta = MIN_INTERVAL,
    ) -> None:
        super().__init__()
        self._outbox = outbox
        self._encode = encode
        self._decode = decode
        self._min_interval = min_interval
        self._unsent: list[Payload] = []
        self.name = name

    def publish(self, payload: Payload) -> None:
        """Run the local actions now, and those of other processes soon."""
        for action in self._actions:
            action(payload)
        if self._outbox.is_open:
            self.send(payload)

    def send(self, payload: Payload) -> None:
        """Run the actions of other processes soon; however often it is called meanwhile, one message is sent."""
        if not self._outbox.takes(self.name):
            return
        self._unsent.append(payload)
        if len(self._unsent) == 1:
            self._outbox.send_later(self.name, self._min_interval, self._take_message)

    def receive(self, message: bytes) -> None:
        """Run the local actions for a message of another process; ValueError or struct.error if it is unreadable."""
        self.run(self._decode(message))

    def _take_message(self) -> bytes:
        payloads, self._unsent = self._unsent, []
        return self._encode(payloads)


JOURNAL_WANTED_FOR = timedelta(seconds=10)
JOURNAL_WANTED_EVERY = timedelta(seconds=3)
"""How long another process counts as a reader of the journal, and how often a reader says that it is one."""


class JournalSignal(Signal[None]):
    """Entries were added to a journal. Costs one attribute test, and sends nothing, while no process reads journals.

    Readers of this process subscribe; other processes are told only as long as one of them says that it reads.
    """

    def __init__(self, outbox: _Outbox, clock: Clock) -> None:
        super().__init__(outbox, "journal", lambda _: b"", lambda _: None)
        self._clock = clock
        self._is_wanted = False
        self._wanted_until = 0.0
        self.wanted = _plain(outbox, "journal_wanted")
        """Another process reads journals. Its readers send it every JOURNAL_WANTED_EVERY."""
        self.wanted.subscribe(lambda _: self._note_wanted())

    def subscribe(self, action: Action[None]) -> Callable[[], None]:
        self._is_wanted = True
        self.wanted.send(None)
        return super().subscribe(action)

    def tell(self) -> None:
        """Wake the readers of the journal, if there are any."""
        if self._is_wanted:
            self._tell_readers()

    def _tell_readers(self) -> None:
        self.run(None)
        if self._clock.monotonic() < self._wanted_until:
            self.send(None)
        elif not self._actions:
            self._is_wanted = False

    def _note_wanted(self) -> None:
        self._is_wanted = True
        self._wanted_until = self._clock.monotonic() + JOURNAL_WANTED_FOR.total_seconds()


class PackedIds:
    """The job ids of a message, unpacked when they are iterated: mostly no task waits for any of them."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    def __iter__(self) -> Iterator[JobId]:
        return from_packed(self._message)


def _encode_sets(payloads: Sequence[frozenset[str]] | Sequence[frozenset[BacklogKey]]) -> bytes:
    return msgspec.json.encode(set(chain.from_iterable(payloads)))


_decode_queues = msgspec.json.Decoder(frozenset[str]).decode
_decode_backlogs = msgspec.json.Decoder(frozenset[BacklogKey]).decode


class Signals:
    """Every signal of the system. They reach other processes once this one listens."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._outbox = outbox = _Outbox(broker, clock)
        self.events = Actions[Sequence[Event]]()
        """Every move that this process made durable, in order."""
        self.arrivals = Actions[Sequence[NewJob]]()
        """Every job that this process added."""
        self.backlog = _plain(outbox, "backlog")
        """Jobs wait in the store for a dispatcher."""
        self.notices = _plain(outbox, "notices")
        """Types, pauses, keys or fleets were changed."""
        self.schedules = _plain(outbox, "schedules")
        """A schedule was changed."""
        self.cancels = _plain(outbox, "cancels")
        """A running job was asked to stop."""
        self.ended = Signal[Iterable[JobId]](
            outbox, "ended", lambda ended: to_packed(chain.from_iterable(ended)), PackedIds
        )
        """These jobs have ended."""
        self.work = Signal[frozenset[str]](
            outbox,
            "work",
            _encode_sets,
            lambda message: _decode_queues(message) if message else UNKNOWN_QUEUES,
            WORK_MIN_INTERVAL,
        )
        """Jobs of these queues have become due."""
        self.window_full = Signal[frozenset[BacklogKey]](
            outbox,
            "line",  # the name that processes of earlier versions know
            _encode_sets,
            lambda message: _decode_backlogs(message or b"[]"),
        )
        """A dispatcher left jobs of these backlogs in the store, as the broker's window for them is full."""
        self.journal = JournalSignal(outbox, clock)
        """Jobs were moved."""
        known = (
            self.backlog, self.notices, self.schedules, self.cancels, self.ended, self.work, self.window_full,
            self.journal, self.journal.wanted,
        )  # fmt: skip
        self._receivers: dict[str, Callable[[bytes], None]] = {signal.name: signal.receive for signal in known}

    def publish_events(self, events: Sequence[Event]) -> None:
        """Tell this process, and others as far as it concerns them, what has become durable."""
        self.events.run(events)
        self.journal.tell()
        if queues := {event.queue for event in events if event.after is State.QUEUED}:
            self.work.publish(frozenset(queues))
        if not self._outbox.is_open:
            return
        if ended := [event.job for event in events if event.after in TERMINAL]:
            self.ended.send(ended)
        if any([event.move is Move.CANCEL and event.before is State.RUNNING for event in events]):
            self.cancels.send(None)

    def send_promptly(self) -> None:
        """Send some signals from now on, each at once, without listening: for a process that stops between its calls.

        Only what is worth a message: what an operator changed, and jobs that are asked to stop.
        """
        self._outbox.is_open = True
        self._outbox.prompt = frozenset({self.cancels.name, self.notices.name, self.schedules.name})

    async def flush(self) -> None:
        """Wait until what was published is sent."""
        await self._outbox.flush()

    async def listen(self) -> timedelta:
        """Do what the signals of other processes ask for, until the broker is closed or lost; the pause before the
        next call."""
        self._outbox.is_open = True
        async for sent in self._broker.listen(tuple(self._receivers)):
            try:
                self._receivers[sent.signal](sent.message)
            except (ValueError, struct.error) as error:
                # Perhaps of another version: a hint that cannot be read is a hint that was missed.
                logger.debug("a message of the signal %s cannot be read: %s", sent.signal, error)
        return RETRY_PAUSE


def _plain(outbox: _Outbox, name: str) -> Signal[None]:
    """A signal without a payload."""
    return Signal[None](outbox, name, lambda _: b"", lambda _: None)


AWAITED_JOBS = 10_000


class ScheduleVersion:
    """A version that grows with each change of a schedule, and the jobs whose end counts as such a change.

    A hint: a change by another process whose signal was missed is seen at the next read.
    """

    def __init__(self, rng: random.Random) -> None:
        self._epoch = f"{rng.getrandbits(48):012x}"
        self._count = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._awaited: dict[JobId, None] = {}

    @property
    def seen(self) -> str:
        """The present version. No other process, and no later run of this one, gives the same."""
        return f"{self._epoch}-{self._count}"

    def advance(self) -> None:
        """Start the next version, and wake the tasks that wait for it."""
        self._count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def await_end(self, jobs: Iterable[JobId]) -> None:
        """Count the end of these jobs as a change: a schedule waits for it."""
        self._awaited.update(dict.fromkeys(jobs))
        while len(self._awaited) > AWAITED_JOBS:
            del self._awaited[next(iter(self._awaited))]

    def observe(self, events: Sequence[Event]) -> None:
        if self._awaited:
            self.observe_ended(event.job for event in events if event.after in TERMINAL)

    def observe_ended(self, jobs: Iterable[JobId]) -> None:
        """Start the next version if the end of one of these jobs is awaited."""
        if not self._awaited:
            return
        ended = [job for job in jobs if job in self._awaited]
        for job in ended:
            self._awaited.pop(job, None)
        if ended:
            self.advance()

    async def wait_for_change(self, seen: str, span: timedelta) -> None:
        """Return once the present version is not `seen` any more, or `span` has passed."""
        if seen == self.seen and not self._closed:
            await within(span, self._changed.wait())

    def close(self) -> None:
        """Wake the tasks that wait, and let none wait from now on."""
        self._closed = True
        self._changed.set()


RECHECK_INTERVAL = timedelta(seconds=1)
"""How soon the end of a job is seen whose signal was missed."""


class JobWaiters:
    """The tasks of this process that wait for the end of a job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: defaultdict[JobId, list[asyncio.Event]] = defaultdict(list)

    def observe(self, events: Sequence[Event]) -> None:
        if self._waiting:
            self.wake(event.job for event in events if event.after in TERMINAL)

    def wake(self, jobs: Iterable[JobId]) -> None:
        """Wake the tasks waiting for these jobs."""
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
