"""How a worker reaches the engine: one interface, kept by `engine.work` directly and by `worker.http` over HTTP."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Protocol

from penstock.model.ids import JobId
from penstock.model.job import Claim, FileLink, Lease, ObjectLink, Renewal
from penstock.model.schedule import Decision
from penstock.model.wire.jobs import JoinResponse, LogEntry, Outcome, Refusal
from penstock.model.wire.schedules import Agenda, ScheduleRequest
from penstock.model.workers import JobType, Worker, WorkRequest


class WorkerApi(Protocol):
    """The engine as a worker sees it. Every call may raise Unavailable: nothing may then be assumed, ask again."""

    async def join(self, worker: Worker, types: Sequence[JobType]) -> JoinResponse:
        """Present the worker and declare its types; may be repeated: of two declarations the newer code's counts."""
        ...

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        """Make each schedule what it says now, unless newer code has declared it. May be repeated.

        One that says so already stays untouched.
        """
        ...

    async def claim(self, worker: str, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Claim]:
        """Up to `limit` jobs, answered the moment there is one, or with none after `wait`."""
        ...

    async def renew(self, worker: Worker, leases: Sequence[Lease]) -> list[Renewal]:
        """The heartbeat: keeps the leases, carries progress, and says which are lost or asked to cancel. In order."""
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        """Record outcomes; gives back only those refused. May be repeated: a repeat is not refused."""
        ...

    async def release(self, leases: Sequence[Lease], *, suspects: bool = False) -> list[Refusal]:
        """Give jobs back unharmed."""
        ...

    async def log(self, entries: Sequence[LogEntry]) -> list[Refusal]:
        """Keep what jobs wrote; gives back those not kept: of a lost attempt, or on a shard that gave no answer."""
        ...

    def read_input(self, job: JobId, file: FileLink) -> AsyncIterator[bytes]:
        """An input's bytes; CorruptObject at the end if they do not match its digest."""
        ...

    async def write_output(
        self, lease: Lease, number: int, body: AsyncIterator[bytes], content_type: str, digest: str
    ) -> ObjectLink:
        """Store the attempt's output `number`; nobody sees it before the settle that links it is accepted."""
        ...

    async def leave(self, worker: str) -> None:
        """Say goodbye, after a drain."""
        ...

    async def close(self) -> None: ...


class SchedulerApi(Protocol):
    """Schedules as a scheduler sees them. Every call may raise Unavailable: nothing may then be assumed, ask again."""

    async def due(self, slot: timedelta, limit: int, wait: timedelta = ..., seen: str | None = None) -> Agenda:
        """What falls due before the shard's now + `slot`, earliest first, at most `limit`.

        With `seen` the answer waits until the schedules are not as that name says any more, at most `wait`.
        """
        ...

    async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
        """Carry out each decision that still holds; False for one that somebody else has made. In order.

        Each is one atomic write. Repeating one that was applied changes nothing.
        """
        ...

    async def close(self) -> None: ...
