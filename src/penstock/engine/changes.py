"""Whether schedules have changed: what wakes those who sleep until the next tick."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from penstock.model.ids import JobId
from penstock.model.lifecycle import TERMINAL, Event
from penstock.model.timing import within

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
