"""What every job store promises. `penstock.testing.store_contract` holds each backend to it.

Three promises stand behind every method:

*Durable on return.* When a call returns, what it reports survives the loss of power. When it raises Unavailable,
nothing it was asked for may be assumed done or not done: ask again, with the same key or fence.

*Each job's move is atomic by itself.* Its guard is compared in the same write that changes it, by the shard and by the
shard's clock. A batch is not a transaction: other callers may see a part of it, and one refused item hurts no other.
Whatever holds across jobs is a declared capability.

*A refused move says why.* Zero rows changed is read again and answered as mine already, lost or gone.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from penstock.model.errors import Unavailable
from penstock.model.ids import JobId, ShardId
from penstock.model.job import (
    BacklogKey,
    Cancellation,
    Claim,
    Count,
    Job,
    JobFilter,
    Lease,
    LogLine,
    NewJob,
    Page,
    Pruned,
    Renewal,
    Retention,
    Settled,
    Settlement,
    Ticket,
)
from penstock.model.lifecycle import Event
from penstock.model.submission import Known, Misplaced, Submission
from penstock.store.journal import Journal, Relays
from penstock.store.registry import Registry, ScheduleStore

PostTickets = Callable[[Sequence[Ticket]], Awaitable[None]]


class Capabilities(Struct, frozen=True):
    """What a store can do beyond the promises above.

    `one_order`: dispatch and lists follow one order over all jobs; without it, one order in each shard.
    `tick_verdicts`: the most verdicts of one `TickMove`; None: any number.
    `rows_expire`: ended jobs and records of ticks vanish by themselves at the retention that the store was opened with:
    then no read shows them and their keys are free. `prune` does nothing there; counts forget them within a day, and
    the history counts only jobs that have not ended.
    `exact_counts`: `counts` shows every move at once; without it, some seconds later.
    `counts_up_to`: in a shard with at least so many jobs that have not ended, the counts of these are lower bounds.
    `prompt_lines`: sweeps, claims from a backlog and `running_by_worker` see every move at once; without it, about a
    second later, so that what they do not show may still be there. Guards are compared with the job itself, always.
    `dispatches_due`: `dispatch` can promote, so that a job that falls due gets its ticket in one write.
    """

    one_order: bool = True
    tick_verdicts: int | None = None
    rows_expire: bool = False
    exact_counts: bool = True
    counts_up_to: int | None = None
    prompt_lines: bool = True
    dispatches_due: bool = False


def common_capabilities(shards: Iterable[Capabilities]) -> Capabilities:
    """What a store over several shards can do: what each of them can, in an order of its own."""
    found = tuple(shards)
    verdicts = [one.tick_verdicts for one in found if one.tick_verdicts is not None]
    counted = [one.counts_up_to for one in found if one.counts_up_to is not None]
    return Capabilities(
        one_order=False,
        tick_verdicts=min(verdicts, default=None),
        rows_expire=any(one.rows_expire for one in found),
        exact_counts=all(one.exact_counts for one in found),
        counts_up_to=min(counted, default=None),
        prompt_lines=all(one.prompt_lines for one in found),
        dispatches_due=bool(found) and all(one.dispatches_due for one in found),
    )


class DueSummary(Struct, frozen=True):
    """A shard's backlog: the queues and types with jobs that wait for a ticket, and when the next job falls due.

    `due` are those of jobs that have fallen due and are not promoted yet; only where the store `dispatches_due`.
    """

    backlog: frozenset[BacklogKey]
    next_due_at: datetime | None
    due: frozenset[BacklogKey] = frozenset()


class Share(Struct, frozen=True):
    """A worker's share of a queue: up to `jobs` jobs of these types."""

    queue: str
    types: Sequence[str]
    jobs: int


class Store(Registry, ScheduleStore, Protocol):
    """Everything durable, as the engine uses it: one shard, or many behind an orchestrator.

    A move about jobs of several shards gives Unavailable as the answer to each job whose shard gives none; when all
    jobs belong to a single shard, its error is raised. The worker's moves (renew, settle, release) wait only PATIENCE
    for the other shards once the first has answered; what a slow one was asked may still be done.
    A schedule and the jobs of its ticks live on the shard `shard_for(schedule_key(name))`.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    def shard_for(self, key: str | None = None) -> ShardId:
        """The shard whose number the id of a new job must contain: the shard of its key, or any healthy one.

        StoreUnavailable when none is healthy. The shard of a key never depends on health.
        """
        ...

    def epoch(self, key: str) -> int | None:
        """The epoch of the ring that `shard_for` uses now: the `ring` of a new job that has this key.

        None where there is only one shard, or the key itself names its shard.
        """
        ...

    def takers(self) -> Mapping[ShardId, float] | None:
        """The shards that take new jobs now, with their weights; None where there is only one."""
        ...

    async def now(self) -> datetime:
        """The shard's clock, by which due times, leases and deadlines are judged."""
        ...

    # -- submit

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> Sequence[Submission | Unavailable]:
        """Insert each job: due ones as queued, with a ticket out for `ticket_for` if `ticketed`; others as scheduled.

        In the order given, one answer each. A key that exists gives its job back: unchanged, without an event, and as a
        conflict when the fingerprint differs. Of two equal keys in one batch the first wins. Jobs under a key that
        another transaction has written and not yet committed are put off (`Held`), and no others. A shard that is
        closed, or knows another ring than the job's, refuses it (`Misplaced`): nothing is written.
        """
        ...

    async def find_moved(self, jobs: Sequence[NewJob]) -> Sequence[Known | Misplaced | Unavailable | None]:
        """For each job the one that its key had on a former shard, before the ring changed; mostly None.

        To be asked before a job is submitted whose `ring` is not 0. Unavailable: that shard does not answer.
        """
        ...

    # -- the worker's moves

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        """Take those of the jobs that are still queued and not expired, in the order given.

        Of several shards raises Unavailable when one gives no answer: ask for each shard's tickets by themselves.
        Each gets fence + 1, attempt + 1 and a lease. A late or doubled ticket finds its job gone and yields nothing.
        """
        ...

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> Sequence[Renewal | Unavailable]:
        """Extend each lease whose fence still holds; keep its progress, and that it has begun. Answers in order."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Settled | Unavailable]:
        """Record each outcome whose fence still holds. One answer each, in order.

        A settlement as scheduled is due `retry_in` from now; a job marked for cancelling is cancelled instead. Unless
        it is a loss, the job need not be alone any more.
        """
        ...

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> Sequence[Settled | Unavailable]:
        """Put running jobs back to queued, unharmed: the attempt is not counted, a marked one is cancelled.

        `suspects` shared an executor that died, or was killed: each is claimed with `alone` from now on. With a
        `delay` they are scheduled instead, due after it.
        """
        ...

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        """Change the type of running jobs whose fence still holds, and nothing else."""
        ...

    # -- the client's moves and reads

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> Sequence[Cancellation | Unavailable]:
        """Cancel waiting jobs, mark running ones (`force`: cancel them, fence + 1), leave ended ones as they are."""
        ...

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> Sequence[Job | Unavailable | None]:
        """One answer each, in order; sees every move that returned before the call.

        With `patience` it waits only so long for the other shards once the first has answered.
        """
        ...

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        """Newest first. A cursor is opaque text from an earlier page; Invalid if it is not.

        Jobs of shards that do not answer are left out; `unavailable` names those.
        """
        ...

    async def counts(self) -> list[Count]:
        """Jobs by queue, type and state; cheap however many have ended. Zero counts may be left out."""
        ...

    async def oldest_due(self) -> dict[str, datetime]:
        """For each queue with queued jobs, the due time of (about) the one that has waited longest."""
        ...

    # -- logs

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        """Keep lines of a running attempt while the job's log is below `cap` bytes; False when the fence is lost.

        `first` is how many lines the attempt wrote before these: what it has sent before is not kept again. None: all
        are kept.
        """
        ...

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        """Lines after position `after` (0: from the start) and the position of the last one given."""
        ...

    # -- the shards behind it

    def shards(self) -> Sequence["Shard"]:
        """The shards in use. Sweeps are asked of each by itself, so that none has to wait for another."""
        ...

    def unavailable(self) -> tuple[ShardId, ...]:
        """The shards that do not answer now: what lists and counts leave out."""
        ...

    async def probe(self) -> None:
        """Return if jobs can be read and written now; raise StoreUnavailable if not."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go of files and connections."""
        ...


class Shard(Store, Journal, Relays, Protocol):
    """One shard, as a backend implements it: a store, its journal, and the sweeps of its dispatcher and reaper.

    Every move writes its entry of the journal in its own write, and raises the `version` of the jobs it changes by 1.
    """

    @property
    def shard(self) -> ShardId:
        """The number in the ids of all jobs kept here."""
        ...

    async def admit(self, *, jobs: bool) -> None:
        """Take new jobs and schedules, or no more of them (closed).

        Once this returns for a closed shard, everything it ever accepted is visible. Conflict while a transaction that
        has submitted is open: nothing is changed then.
        """
        ...

    async def raise_epoch(self) -> None:
        """Invalidate all fences given so far, after the shard was restored from a backup.

        Running jobs wait for the reaper without being charged, and tickets are forgotten. Every fence given from now
        on is above all earlier ones, also for ids that the backup lacks. A backend that can detect it does it itself.
        """
        ...

    async def find_keyed(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
        """For each job the one that has its key here; Misplaced where the shard knows another ring than the job's.

        None is final: no job that was routed by an older ring can take the key here afterwards.
        """
        ...

    async def has_keys_before(self, at: datetime) -> bool:
        """Whether a job that has a key was submitted here before an instant, and is still there."""
        ...

    # -- moves, which one shard answers as a whole or not at all

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> list[Submission]: ...

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]: ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]: ...

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> list[Settled]: ...

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> list[Cancellation]: ...

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> list[Job | None]: ...

    # -- sweeps

    async def promote(self, limit: int) -> list[Event]:
        """Move up to `limit` scheduled jobs that are due to queued, earliest first; they have no ticket yet."""
        ...

    async def dispatch(
        self,
        room: Mapping[BacklogKey, int],
        ticket_for: timedelta,
        post: PostTickets | None = None,
        *,
        due: bool = False,
    ) -> list[Ticket]:
        """Mark queued jobs without a ticket as ticketed, at most `room[backlog]` of each backlog, and `post` them.

        Highest priority first, then oldest first; expired jobs are passed over. A store that
        several processes share posts before its marks are durable: after a crash in between, any process may post the
        jobs again at once. What `post` raises is raised, and then nothing is marked. Without `post` the caller posts.
        With `due`, scheduled jobs that are due are promoted and marked in one write, if the store `dispatches_due`.
        """
        ...

    async def overdue_tickets(self, after: JobId | None, limit: int) -> list[JobId]:
        """Queued jobs whose ticket was not claimed by its deadline, by id, after an id."""
        ...

    async def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        """Forget the tickets of these jobs that are overdue, or all there are (None: the broker lost its memory).

        How many. Their jobs stay queued and are dispatched again.
        """
        ...

    async def due_summary(self) -> DueSummary:
        """Cheap however many jobs there are."""
        ...

    async def claim_next(self, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
        """Claim queued jobs that have no ticket: what `dispatch` and then `claim` would do, in one move.

        From each queue, which is named once, the highest priority first, whatever the type. Of equal priority oldest
        first within a type, and first the type whose next job is the oldest. Jobs of other types cost nothing, however
        many there are. Expired jobs are passed over, and so are those that another move holds at this moment.
        """
        ...

    async def reclaim(self, limit: int) -> list[Event]:
        """Take back jobs whose lease has passed: queued again, failed as poison, or cancelled when marked.

        Only an attempt that has begun is charged with the loss. From SUSPECT_LOSSES on its job is claimed with
        `alone_in_worker`; only one that was claimed so, and has POISON_LOSSES now, fails.
        """
        ...

    async def expire(self, limit: int) -> list[Event]:
        """End waiting jobs whose `expires_at` has passed."""
        ...

    async def due_before(self, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        """Queue and due time of the scheduled jobs that are due before an instant, earliest first, at most `limit`."""
        ...

    async def running_by_worker(self) -> dict[str, int]:
        """How many running jobs each worker holds, of those that hold any."""
        ...

    async def prune(self, keep: Retention, limit: int) -> Pruned:
        """Delete up to `limit` ended jobs past their retention, with their logs. Not needed where `rows_expire`.

        A store that can drop many at once may delete more; with fewer deleted, there is no more to do for now.
        """
        ...


def schedule_key(name: str) -> str:
    """The key that a schedule of this name lives under."""
    return f"schedule/{name}"


def role_key(role: str) -> str:
    """The key that a role lives under."""
    return f"role/{role}"
