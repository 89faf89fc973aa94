"""Waiting for a job to end: woken by whoever ends it, here or (by a bell) in another process."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta

from penstock.model.ids import JobId
from penstock.model.job import Job
from penstock.model.lifecycle import TERMINAL, Event
from penstock.model.timing import Clock, seconds

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
