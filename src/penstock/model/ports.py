"""The interfaces through which workers and schedulers use an engine, directly or over HTTP."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Protocol

from penstock.model.ids import JobId
from penstock.model.job import Claim, FileLink, Lease, ObjectLink
from penstock.model.schedule import Decision
from penstock.model.wire.jobs import JoinResponse, LogEntry, Outcome, Refusal, RenewResponse
from penstock.model.wire.schedules import Agenda, ScheduleRequest
from penstock.model.workers import JobType, Worker, WorkRequest


class WorkerApi(Protocol):
    """The engine for workers. Every call may raise Unavailable: its effect is then unknown; call again."""

    async def join(self, worker: Worker, types: Sequence[JobType]) -> JoinResponse:
        """Register the worker and declare its types. Repeatable; of two declarations that of the newer code wins."""
        ...

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        """Create or replace each schedule, unless newer code has declared it. Repeatable.

        An unchanged schedule is left untouched.
        """
        ...

    async def claim(self, worker: str, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Claim]:
        """Up to `limit` jobs, answered the moment there is one, or with none after `wait`."""
        ...

    async def renew(self, worker: Worker, leases: Sequence[Lease]) -> RenewResponse:
        """The heartbeat: renews the leases, reports progress, and answers in order which are lost or cancelled.

        The answer also says whether the worker is asked to drain.
        """
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        """Record outcomes; returns the refused ones. Repeatable: a repeat is not refused."""
        ...

    async def release(self, leases: Sequence[Lease], *, suspects: bool = False) -> list[Refusal]:
        """Return jobs without counting the attempt."""
        ...

    async def log(self, entries: Sequence[LogEntry]) -> list[Refusal]:
        """Append to the logs of jobs; returns those not kept: the attempt is lost, or its shard gave no answer."""
        ...

    def read_input(self, job: JobId, file: FileLink) -> AsyncIterator[bytes]:
        """An input's bytes; CorruptObject at the end if they do not match its digest."""
        ...

    async def write_output(
        self, lease: Lease, number: int, body: AsyncIterator[bytes], content_type: str, digest: str
    ) -> ObjectLink:
        """Store the attempt's output `number`; it is invisible until the settle that links it is accepted."""
        ...

    async def leave(self, worker: str) -> None:
        """Unregister the worker, after its drain."""
        ...

    async def close(self) -> None: ...


class SchedulerApi(Protocol):
    """Schedules for schedulers. Every call may raise Unavailable: its effect is then unknown; call again."""

    async def due(self, slot: timedelta, limit: int, wait: timedelta = ..., seen: str | None = None) -> Agenda:
        """What falls due before the shard's now + `slot`, earliest first, at most `limit`.

        With `seen` the answer waits until the schedules are not as that name says any more, at most `wait`.
        """
        ...

    async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
        """Carry out each decision that still holds; False for one that another scheduler has made. In order.

        Each is one atomic write. Repeating one that was applied changes nothing.
        """
        ...

    async def close(self) -> None: ...
