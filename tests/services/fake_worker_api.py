"""A WorkerApi in memory, for answers and failures that a real engine cannot be made to give at a chosen moment."""

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Raw

from penstock.model.clock import within
from penstock.model.errors import CorruptObject, ServerUnavailable
from penstock.model.ids import JobId, ShardId, new_job_id
from penstock.model.job import Claim, FileLink, Lease, LogLine, Loss, ObjectLink, Progress, Renewal
from penstock.model.wire.jobs import JoinResponse, LogEntry, Outcome, Refusal, RenewResponse
from penstock.model.wire.schedules import ScheduleRequest
from penstock.model.workers import DrainRequest, JobType, Worker, WorkRequest

WITHIN = 15.0


class FakeWorkerApi:
    """Records every call. `down` makes every call fail; the sets say what a renew answers.

    `mishaps` holds functions by the name of a call: each gets what that call carries and may raise.
    """

    def __init__(self, lease: float = 15.0, heartbeat: float = 0.1) -> None:
        self.lease = lease
        self.heartbeat = heartbeat
        self.down = False
        self.waiting: list[Claim] = []
        self.claimed: list[Claim] = []
        self.limits: list[int] = []
        self.outcomes: dict[str, Outcome] = {}
        self.released: dict[str, bool] = {}
        self.lines: dict[str, list[LogLine]] = {}
        self.progress: dict[str, list[Progress]] = {}
        self.begun: dict[str, bool] = {}
        self.cancelling: set[str] = set()
        self.lost: set[str] = set()
        self.unsure: set[str] = set()
        self.drain: DrainRequest | None = None
        self.misfits: set[str] = set()
        self.wanted: list[WorkRequest] = []
        self.inputs: dict[str, bytes] = {}
        self.outputs: dict[tuple[str, int], tuple[bytes, str]] = {}
        self.workers: list[Worker] = []
        self.types: Sequence[JobType] = ()
        self.schedules: Sequence[ScheduleRequest] = ()
        self.left = False
        self.renewed: list[set[str]] = []
        self.mishaps: dict[str, Callable[[Sequence[Any]], None]] = {}
        self._number = 0
        self._rng = random.Random(11)
        self._news = asyncio.Event()

    # -- what a test does

    def submit(
        self,
        type_name: str,
        *,
        alone: bool = False,
        alone_in_worker: bool = False,
        lost: int = 0,
        inputs: Sequence[FileLink] = (),
        timeout: float | None = None,
        attempt: int = 1,
        shard: int = 0,
        **params: object,
    ) -> str:
        """A job that was `lost` so many times before."""
        self._number += 1
        claim = Claim(
            job=new_job_id(self._number, ShardId(shard), self._rng), type=type_name, queue=type_name,
            attempt=attempt, fence=attempt + 2 * lost, params=Raw(json.dumps(params).encode()),
            timeout_seconds=timeout, lease_seconds=self.lease,
            inputs=tuple(inputs), alone=alone, alone_in_worker=alone_in_worker,
        )  # fmt: skip
        self.waiting.append(claim)
        self._tell()
        return claim.job

    def add_input(self, name: str, body: bytes) -> FileLink:
        self.inputs[name] = body
        return FileLink(name, ObjectLink(name, len(body), hashlib.sha256(body).hexdigest()))

    async def until(self, what: str, true: Callable[[], object], seconds: float = WITHIN) -> None:
        """Return once something is true, looked at after every call."""
        async with asyncio.timeout(seconds):
            while not true():
                self._news.clear()
                await self._news.wait()

    async def outcome(self, job: str, seconds: float = WITHIN) -> Outcome:
        await self.until(f"{job} ends", lambda: job in self.outcomes, seconds)
        return self.outcomes[job]

    async def result(self, job: str) -> object:
        outcome = await self.outcome(job)
        assert outcome.error is None, outcome.error
        assert outcome.result is not None
        return json.loads(bytes(outcome.result))

    def text(self, job: str) -> list[tuple[str, str]]:
        return [(line.stream, line.text) for line in self.lines.get(job, [])]

    def _tell(self) -> None:
        self._news.set()

    def _require_up(self, call: str = "", carried: Sequence[Any] = ()) -> None:
        if self.down:
            raise ServerUnavailable("it is down")
        if call in self.mishaps:
            self.mishaps[call](carried)

    # -- Reach

    async def join(self, worker: Worker, types: Sequence[JobType]) -> JoinResponse:
        self._require_up()
        self.types = types
        return JoinResponse(self.lease, self.heartbeat)

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        self._require_up()
        self.schedules = schedules

    async def claim(self, worker: str, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Claim]:
        self._require_up()
        self.limits.append(limit)
        self.wanted.append(wanted)
        self._tell()
        await within(wait, self._some_waiting())
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.claimed += taken
        self._tell()
        return taken

    async def _some_waiting(self) -> None:
        await self.until("there is work", lambda: self.waiting, 3600)

    async def renew(self, worker: Worker, leases: Sequence[Lease]) -> RenewResponse:
        self._require_up("renew", leases)
        self.workers.append(worker)
        self.renewed.append({one.job for one in leases})
        for lease in leases:
            self.begun[lease.job] = lease.begun
            if lease.progress is not None:
                self.progress.setdefault(lease.job, []).append(lease.progress)
        self._tell()
        answers = [Renewal(one.job, one.fence, self._loss(one.job), one.job in self.cancelling) for one in leases]
        return RenewResponse(tuple(answers), self.drain)

    def _loss(self, job: str) -> Loss | None:
        return Loss.LOST if job in self.lost else Loss.UNSURE if job in self.unsure else None

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        self._require_up("settle", outcomes)
        self.outcomes |= {one.job: one for one in outcomes if one.job not in self.unsure}
        self._tell()
        unsure = [Refusal(one.job, one.fence, Loss.UNSURE) for one in outcomes if one.job in self.unsure]
        return unsure + [Refusal(one.job, one.fence, Loss.GIVEN_BACK) for one in outcomes if one.job in self.misfits]

    async def release(self, leases: Sequence[Lease], *, suspects: bool = False) -> list[Refusal]:
        self._require_up("release", leases)
        self.released |= {one.job: suspects for one in leases}
        self._tell()
        return []

    async def log(self, entries: Sequence[LogEntry]) -> list[Refusal]:
        self._require_up("log", entries)
        for entry in entries:
            assert entry.job not in self.outcomes, "a log that comes after the end"
            kept = self.lines.setdefault(entry.job, [])
            kept.extend(entry.lines if entry.first is None else entry.lines[len(kept) - entry.first :])
        self._tell()
        return []

    async def read_input(self, job: JobId, file: FileLink) -> AsyncIterator[bytes]:
        self._require_up()
        body = self.inputs[file.name]
        yield body
        if hashlib.sha256(body).hexdigest() != file.object.digest:
            raise CorruptObject("it does not match its digest")

    async def write_output(
        self, lease: Lease, number: int, body: AsyncIterator[bytes], content_type: str, digest: str
    ) -> ObjectLink:
        self._require_up()
        whole = b"".join([chunk async for chunk in body])
        assert hashlib.sha256(whole).hexdigest() == digest
        self.outputs[lease.job, number] = (whole, content_type)
        return ObjectLink(f"{lease.job}/{lease.fence}/{number}", len(whole), digest, content_type)

    async def leave(self, worker: str) -> None:
        self._require_up()
        self.left = True
        self._tell()

    async def close(self) -> None: ...
