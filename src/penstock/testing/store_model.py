"""A job store as a dictionary: the specification of every move, in its shortest form."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.ids import JobId, ShardId, shard_of
from penstock.model.job import BacklogKey, Lease, Loss, NewJob, Retention
from penstock.model.lifecycle import POISON_LOSSES, SUSPECT_LOSSES, WAITING, State
from penstock.store.seam import Share
from penstock.testing.clock import SimulatedClock

LEASE = timedelta(seconds=15)
TICKET = timedelta(seconds=30)
KEEP = Retention(succeeded=timedelta(seconds=60), failed=timedelta(seconds=120))


class ModelJob(Struct, frozen=True):
    """What the moves decide about a job."""

    id: JobId
    line: BacklogKey
    priority: int
    state: State
    due_at: datetime
    expires_at: datetime | None
    key: str | None = None
    fingerprint: bytes = b""
    attempt: int = 0
    fence: int = 0
    losses: int = 0
    worker: str | None = None
    marked: bool = False
    alone: bool = False
    alone_in_worker: bool = False
    begun: bool = False
    ticket_until: datetime | None = None
    lease_until: datetime | None = None
    completed_at: datetime | None = None
    version: int = 1

    def waits(self, now: datetime) -> bool:
        """Queued and not expired."""
        return self.state is State.QUEUED and (self.expires_at is None or self.expires_at > now)


def by_shard(jobs: Iterable[JobId]) -> dict[ShardId, list[JobId]]:
    """Jobs as the lines of their shards, each in the order given."""
    lines: dict[ShardId, list[JobId]] = {}
    for job in jobs:
        lines.setdefault(shard_of(job), []).append(job)
    return lines


class Model:
    """A job store as a dictionary, oldest job first. Each move gives back what the store should answer."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.jobs: dict[JobId, ModelJob] = {}

    def change(self, job: JobId, **fields: Any) -> None:
        """Change a job. Another state, and a mark for cancelling, are another version."""
        old = self.jobs[job]
        new = replace(old, **fields)
        self.jobs[job] = replace(new, version=old.version + ((new.state, new.marked) != (old.state, old.marked)))

    def end(self, job: JobId, state: State, **fields: Any) -> None:
        self.change(job, state=state, completed_at=self.clock.now(), lease_until=None, ticket_until=None, **fields)

    def wait(self, job: JobId, state: State, **fields: Any) -> None:
        self.change(job, state=state, worker=None, lease_until=None, **fields)

    def submit(self, new: NewJob) -> tuple[JobId, bool, bool]:
        """The job, whether it was inserted, whether it is a conflict."""
        for job in self.jobs.values():
            if new.key is not None and job.key == new.key:
                return job.id, False, job.fingerprint != new.fingerprint
        now = self.clock.now()
        due_at = now + (new.delay or timedelta())
        state = State.QUEUED if due_at <= now else State.SCHEDULED
        job = ModelJob(
            new.id,
            BacklogKey(new.queue, new.type),
            new.priority,
            state,
            due_at,
            new.expires_at,
            new.key,
            new.fingerprint,
        )
        self.jobs[new.id] = job
        if new.ticketed and state is State.QUEUED:
            self.change(new.id, ticket_until=now + TICKET)
        return new.id, True, False

    def promote(self) -> set[JobId]:
        due = {j.id for j in self.jobs.values() if j.state is State.SCHEDULED and j.due_at <= self.clock.now()}
        for job in due:
            self.change(job, state=State.QUEUED)
        return due

    def dispatch(self, room: dict[BacklogKey, int]) -> list[JobId]:
        """The first of each line, as far as there is room."""
        chosen = [job for line, free in room.items() for job in self.ready({line})[:free]]
        self.ticket(chosen)
        return chosen

    def ready(self, lines: set[BacklogKey]) -> list[JobId]:
        """The jobs that wait for a ticket, in the order in which they get it."""
        now = self.clock.now()
        ready = [j for j in self.jobs.values() if j.line in lines and j.waits(now) and j.ticket_until is None]
        return [job.id for job in sorted(ready, key=lambda job: -job.priority)]

    def ticket(self, jobs: Sequence[JobId]) -> None:
        for job in jobs:
            self.change(job, ticket_until=self.clock.now() + TICKET)

    def follow_dispatch(self, room: dict[BacklogKey, int], chosen: Sequence[JobId]) -> None:
        """Take over the choice of a store of many shards, if it is legal."""
        for line, free in room.items():
            self.check_choice({line}, free, chosen)
        assert {self.jobs[job].line for job in chosen} <= set(room)
        self.ticket(chosen)

    def check_choice(self, lines: set[BacklogKey], free: int, chosen: Sequence[JobId]) -> list[JobId]:
        """Whether these may be chosen from some lines: the room is used, and of each line and shard the first go."""
        ready, mine = self.ready(lines), [job for job in chosen if self.jobs[job].line in lines]
        assert len(mine) == min(max(0, free), len(ready))
        for line in lines:
            waiting = by_shard(job for job in ready if self.jobs[job].line == line)
            taken = by_shard(job for job in mine if self.jobs[job].line == line)
            assert all(first == waiting.get(shard, [])[: len(first)] for shard, first in taken.items())
        return mine

    def check_next(self, asked: Sequence[Share], chosen: Sequence[JobId], *, one_order: bool) -> None:
        """Whether these may be claimed next: the most urgent of each queue first, whatever their type."""
        for share in asked:
            lines = {BacklogKey(share.queue, type_name) for type_name in share.types}
            urgent = [self.jobs[job].priority for job in self.ready(lines)]
            mine = self.check_choice(lines, share.jobs, chosen)
            if one_order:
                assert [self.jobs[job].priority for job in mine] == urgent[: len(mine)]
        wanted = {BacklogKey(share.queue, type_name) for share in asked for type_name in share.types}
        assert {self.jobs[job].line for job in chosen} <= wanted

    def overdue_tickets(self) -> list[JobId]:
        now = self.clock.now()
        return sorted(job.id for job in self.jobs.values() if job.ticket_until and job.ticket_until <= now)

    def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        out = [job.id for job in self.jobs.values() if job.ticket_until] if jobs is None else jobs
        for job in out:
            self.change(job, ticket_until=None)
        return len(out)

    def claim(self, jobs: Sequence[JobId], worker: str) -> list[tuple[JobId, int, int, bool, bool]]:
        now, claimed = self.clock.now(), []
        for job in jobs:
            old = self.jobs.get(job)
            if old is not None and old.waits(now):
                attempt, fence = old.attempt + 1, old.fence + 1
                self.change(job, state=State.RUNNING, attempt=attempt, fence=fence, worker=worker)
                self.change(job, ticket_until=None, lease_until=now + LEASE, begun=False)
                claimed.append((job, fence, attempt, old.alone, old.alone_in_worker))
        return claimed

    def loss(self, lease: Lease) -> Loss | None:
        """Why a move under this lease is refused; None when it is not."""
        job = self.jobs.get(lease.job)
        if job is None:
            return Loss.GONE
        if job.fence != lease.fence:
            return Loss.LOST
        return None if job.state is State.RUNNING else Loss.MINE_ALREADY

    def renew(self, lease: Lease) -> tuple[Loss | None, bool]:
        loss = self.loss(lease)
        if loss is not None:
            return loss, False
        job = self.jobs[lease.job]
        self.change(lease.job, lease_until=self.clock.now() + LEASE, begun=job.begun or lease.begun)
        return None, job.marked

    def settle(self, lease: Lease, state: State, retry_in: timedelta | None, *, lost: bool) -> Loss | None:
        loss = self.loss(lease)
        if loss is not None:
            return loss
        job = self.jobs[lease.job]
        due_at = job.due_at if retry_in is None else self.clock.now() + retry_in
        self.change(lease.job, losses=job.losses + lost, due_at=due_at)
        if not lost:
            self.change(lease.job, alone=False, alone_in_worker=False)
        if state is not State.SCHEDULED:
            self.end(lease.job, state)
        elif job.marked:
            self.end(lease.job, State.CANCELLED)
        else:
            self.wait(lease.job, State.SCHEDULED)
        return None

    def release(self, lease: Lease, *, suspects: bool, delay: timedelta | None = None) -> Loss | None:
        loss = self.loss(lease)
        if loss is not None:
            return loss
        job = self.jobs[lease.job]
        self.change(lease.job, attempt=job.attempt - 1, alone=job.alone or suspects)
        if delay is not None and not job.marked:
            self.change(lease.job, due_at=self.clock.now() + delay)
        if job.marked:
            self.end(lease.job, State.CANCELLED)
        else:
            self.wait(lease.job, State.QUEUED if delay is None else State.SCHEDULED)
        return None

    def reclaim(self) -> set[JobId]:
        lost = [j for j in self.jobs.values() if j.lease_until is not None and j.lease_until <= self.clock.now()]
        for job in lost:
            losses = job.losses + job.begun
            alone = job.alone_in_worker or (job.begun and losses >= SUSPECT_LOSSES)
            self.change(job.id, attempt=job.attempt - 1, losses=losses, fence=job.fence + 1, alone_in_worker=alone)
            if job.marked:
                self.end(job.id, State.CANCELLED)
            elif job.begun and job.alone_in_worker and losses >= POISON_LOSSES:
                self.end(job.id, State.FAILED)
            else:
                self.wait(job.id, State.QUEUED)
        return {job.id for job in lost}

    def cancel(self, job: JobId, *, force: bool) -> bool:
        """Whether anything changed."""
        old = self.jobs.get(job)
        if old is None or old.state.terminal:
            return False
        if old.state in WAITING:
            self.end(job, State.CANCELLED, marked=True)
        elif force:
            self.end(job, State.CANCELLED, marked=True, fence=old.fence + 1)
        else:
            self.change(job, marked=True)
            return not old.marked
        return True

    def expire(self) -> set[JobId]:
        now = self.clock.now()
        over = {j.id for j in self.jobs.values() if j.state in WAITING and j.expires_at and j.expires_at <= now}
        for job in over:
            self.end(job, State.EXPIRED)
        return over

    def prune(self) -> int:
        now, before = self.clock.now(), len(self.jobs)
        kept = {State.SUCCEEDED: KEEP.succeeded}
        self.jobs = {
            job.id: job
            for job in self.jobs.values()
            if job.completed_at is None or job.completed_at > now - kept.get(job.state, KEEP.failed)
        }
        return before - len(self.jobs)
