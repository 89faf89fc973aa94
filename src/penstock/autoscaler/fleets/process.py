"""One worker process of a local fleet, from the wish for it to its exit status."""

import asyncio
import signal
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

from penstock.autoscaler.fleets.seam import Condition, FleetMember
from penstock.model.errors import PenstockError, Refused
from penstock.model.timing import Clock, seconds

ASK_AGAIN: Final = seconds(1.0)
ASKED_TIMES: Final = 60
"""How often, and so for how many seconds, a worker is told to give its jobs back before it is killed."""

NOT_STARTED: Final = 1
UNUSABLE: Final = 2
"""What a worker exits with that cannot use its app or settings."""


class Process(Protocol):
    """A worker process that this one started; `ended` gives its exit status, negative for a signal."""

    @property
    def pid(self) -> int: ...

    @property
    def ended(self) -> "asyncio.Future[int]": ...

    def signal(self, number: signal.Signals) -> None: ...


class Launch(Protocol):
    """Starts a worker for an app: the order's environment, then what is its own."""

    def __call__(self, app: str, environment: Mapping[str, str], own: Mapping[str, str], /) -> Awaitable[Process]: ...


class WorkerProcess:
    """`run` it once; `drain` it at any time."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._started_at = clock.now()
        self._process: Process | None = None
        self._ended: tuple[int, str] | None = None
        self._draining = False
        self._give_back_at = float("inf")
        self._news = asyncio.Event()

    async def run(self, launched: Awaitable[Process]) -> None:
        """Start the process and see it to its end."""
        try:
            process = self._process = await launched
        except PenstockError as error:
            self._ended = (UNUSABLE if isinstance(error, Refused) else NOT_STARTED, error.message)
            return
        ending = asyncio.ensure_future(self._end(process))
        status = await process.ended
        ending.cancel()
        self._ended = (status, _how(process.pid, status))

    def drain(self, patience: timedelta | None) -> None:
        """Have it finish its jobs and end; sooner, if it was given longer before."""
        if patience is not None:
            self._give_back_at = min(self._give_back_at, self._clock.monotonic() + patience.total_seconds())
        self._draining = True
        self._news.set()

    def describe(self) -> FleetMember:
        status, detail = self._ended or (None, f"pid {self._process.pid}" if self._process is not None else "")
        return FleetMember(
            name=self._name,
            condition=self._condition(),
            started_at=self._started_at,
            exit_status=status,
            detail=detail,
        )

    def _condition(self) -> Condition:
        if self._ended is not None:
            return Condition.ENDED
        if self._draining:
            return Condition.ENDING
        return Condition.STARTING if self._process is None else Condition.RUNNING

    async def _end(self, process: Process) -> None:
        """The ladder: ask to drain, and when patience is over ask for the jobs back, then kill."""
        while not self._draining:
            await self._hear_news()
        process.signal(signal.SIGTERM)
        while (left := self._give_back_at - self._clock.monotonic()) > 0:
            await self._hear_news(left)
        # Again and again: a signal that comes before the last one was seen is lost.
        for _ in range(ASKED_TIMES):
            process.signal(signal.SIGTERM)
            await self._clock.sleep(ASK_AGAIN)
        process.signal(signal.SIGKILL)

    async def _hear_news(self, longest: float = float("inf")) -> None:
        span = None if longest == float("inf") else longest
        with suppress(TimeoutError):
            async with asyncio.timeout(span):
                await self._news.wait()
        self._news.clear()


def _how(pid: int, status: int) -> str:
    if status == UNUSABLE:
        return f"pid {pid}: its app or settings cannot be used; what it said stands in its log"
    return f"pid {pid}: exited with status {status}" if status >= 0 else f"pid {pid}: killed by {_signal_name(-status)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
