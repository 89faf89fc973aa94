"""PostgresStore: the whole shard, in a database that any number of processes share. The promises stand in the seam."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Self, TypeVar

from penstock.model.clock import Clock, SystemClock, millis, to_millis
from penstock.model.errors import StoreUnavailable
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
from penstock.model.notices import Notice, NoticeChange
from penstock.model.schedule import Due, Schedule, Ticked, TickMove, TickRecord
from penstock.model.submission import Known, Misplaced, Submission
from penstock.model.workers import EVER, Seen, Worker
from penstock.store.batcher import Batcher
from penstock.store.postgres import queries, registry, schedules
from penstock.store.postgres import registry as admission
from penstock.store.postgres import schedules as ticks
from penstock.store.postgres.connection import HeldElsewhere, PostgresAddress, refused
from penstock.store.postgres.epoch import EpochWatch, raise_epoch
from penstock.store.postgres.leases import cancel, claim, claim_next, expire, reclaim, release, renew, retype, settle
from penstock.store.postgres.migrate import bring_up_to_date
from penstock.store.postgres.ownership import take_ownership, warn_of_lost_commits
from penstock.store.postgres.partitions import Partitions
from penstock.store.postgres.pool import ConnectionPool
from penstock.store.postgres.server_clock import ServerClock
from penstock.store.postgres.statements import Connection, PostgresTransaction, Session, execute, in_transaction, load
from penstock.store.postgres.submit import KeyedSubmits, submit
from penstock.store.postgres.sweeps import dispatch, expire_tickets, fold_counts, post_marked, promote, prune
from penstock.store.seam import Capabilities, DueSummary, PostTickets, Share

FIRST_SHARD = ShardId(0)
DEADLINE = timedelta(seconds=5)
PROBE_PATIENCE = timedelta(milliseconds=500)
CONNECTIONS = 10
FOLD_EVERY = 256
"""Writes of this process between two folds of the counts."""

BATCH_ITEMS = 2_000
BALLAST_BYTES = 1 << 20
"""The free space that the disk must have for the shard to be healthy again after it refused a write."""

Item = TypeVar("Item")
T = TypeVar("T")

_PROBE = load("probe")
_LOAD_BALLAST = load("load_ballast")

logger = logging.getLogger(__name__)


class PostgresStore:
    """A shard in a database. Counts are exact; a batch may become visible in parts."""

    capabilities = Capabilities()

    def __init__(self, connections: ConnectionPool, clock: Clock | None, shard: ShardId) -> None:
        self.shard = shard
        self._clock = clock
        self._connections = connections
        self._epochs = EpochWatch(self._test_now)
        connections.on_restored = self._epochs.follow
        self._timepiece = ServerClock(lambda: self._read(queries.now), SystemClock())
        self._partitions = Partitions()
        self._writes = 0
        self._folding: asyncio.Task[None] | None = None
        self._keyed_submits = KeyedSubmits(self._move, SystemClock())
        self._claims = self._batch(claim)
        self._renewals = self._batch(renew)
        self._settles = self._batch(settle)
        self._releases = self._batch(release)
        self._gets = self._batch(queries.get)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        shard: ShardId = FIRST_SHARD,
        clock: Clock | None = None,
        deadline: timedelta = DEADLINE,
        connections: int = CONNECTIONS,
        migrate: bool = True,
    ) -> Self:
        """Create the tables as needed, or refuse to. `clock` is for tests alone: the shard's clock is the server's.

        StoreUnavailable when the server does not answer within the deadline, or when the database lacks tables, or
        belongs to another shard or to a newer Penstock.
        """
        store = cls(ConnectionPool(PostgresAddress.parse(url), deadline, connections), clock, shard)
        try:
            await bring_up_to_date(url, store._connections, allowed=migrate)
            await store._connections.run(store._prepare)
            await store._move(_probe)
            await store._connections.run(store._epochs.check)
            store._connections.on_connected = store._epochs.check
            await store._whole(store._partitions.make_ahead)
        except BaseException:
            await store.close()
            raise
        return store

    async def _prepare(self, connection: Connection) -> None:
        shown = self._connections.address.shown
        await take_ownership(connection, self.shard, shown, self._test_now())
        await warn_of_lost_commits(connection, shown)

    def shard_for(self, key: str | None = None) -> ShardId:
        return self.shard

    def epoch(self, key: str) -> None:
        return None

    def takers(self) -> None:
        return None

    def shards(self) -> Sequence[Self]:
        return (self,)

    def unavailable(self) -> tuple[ShardId, ...]:
        return ()

    async def now(self) -> datetime:
        return await self._timepiece.now() if self._clock is None else self._clock.now()

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> list[Submission]:
        """Straight to a connection: the engine has gathered what other callers submit meanwhile."""
        entries = [(job, ticket_for) for job in jobs]
        if all([job.key is None for job in jobs]):
            return await self._move(partial(submit, entries=entries)) if entries else []
        return await self._keyed_submits.submit(entries)

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[None]:
        return [None] * len(jobs)

    async def find_keyed(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
        return await self._read(partial(admission.find_keyed, jobs=jobs))

    async def has_keys_before(self, at: datetime) -> bool:
        return await self._read(partial(admission.has_keys_before, at=at))

    async def admit(self, *, jobs: bool) -> None:
        await self._whole(partial(admission.admit, jobs=jobs))

    async def raise_epoch(self) -> None:
        await self._whole(partial(raise_epoch, restored=True))

    async def promote(self, limit: int) -> list[Event]:
        return await self._move(partial(promote, limit=limit))

    async def dispatch(
        self, room: Mapping[BacklogKey, int], ticket_for: timedelta, post: PostTickets | None = None
    ) -> list[Ticket]:
        marked = partial(dispatch, shard=self.shard, room=room, ticket_for=ticket_for)
        return await self._move(marked if post is None else partial(post_marked, marked=marked, post=post))

    async def overdue_tickets(self, after: JobId | None, limit: int) -> list[JobId]:
        return await self._read(partial(queries.overdue_tickets, after=after, limit=limit, given=self._test_now()))

    async def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        return await self._move(partial(expire_tickets, jobs=jobs))

    async def due_summary(self) -> DueSummary:
        return await self._read(partial(queries.due_summary, given=self._test_now()))

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        self._wrote()
        span = millis(lease)
        claims = await self._claims.submit([(ticket, worker, span) for ticket in tickets])
        return [one for one in claims if one is not None]

    async def claim_next(self, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
        return await self._move(partial(claim_next, asked=asked, worker=worker, lease=lease))

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]:
        return await self._renewals.submit([(held, lease) for held in leases])

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self._wrote()
        return await self._settles.submit(settlements)

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> list[Settled]:
        return await self._releases.submit([(lease, suspects, delay) for lease in leases])

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        await self._move(partial(retype, leases=leases, type_name=type_name))

    async def reclaim(self, limit: int) -> list[Event]:
        return await self._move(partial(reclaim, limit=limit))

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> list[Cancellation]:
        return await self._move(partial(cancel, jobs=jobs, force=force))

    async def expire(self, limit: int) -> list[Event]:
        return await self._move(partial(expire, limit=limit))

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> list[Job | None]:
        return await self._gets.submit(jobs)

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        return await self._snapshot(partial(queries.page, where=where, cursor=cursor, limit=limit))

    async def counts(self) -> list[Count]:
        return await self._read(queries.counts)

    async def oldest_due(self) -> dict[str, datetime]:
        return await self._read(queries.oldest_due)

    async def due_before(self, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        return await self._read(partial(queries.due_before, before=before, limit=limit))

    async def running_by_worker(self) -> dict[str, int]:
        return await self._read(queries.running_by_worker)

    async def prune(self, keep: Retention, limit: int) -> Pruned:
        await self._whole(self._partitions.make_ahead)
        dropped = await self._whole(partial(self._partitions.drop_past, keep=keep))
        pruned = await self._whole(partial(prune, keep=keep, limit=max(0, limit - dropped.jobs)))
        await self._move(fold_counts)
        return Pruned(dropped.jobs + pruned.jobs, dropped.owners + pruned.owners)

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        return await self._whole(partial(queries.append_log, lease=lease, lines=lines, cap=cap, first=first))

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        return await self._read(partial(queries.read_log, job=job, after=after, limit=limit))

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        await self._whole(partial(registry.put_notices, notices=notices))

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        return await self._whole(partial(registry.change_notices, changes=changes))

    async def notices(self) -> list[Notice]:
        return await self._read(registry.notices)

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        return await self._whole(partial(registry.acquire_role, role=role, holder=holder, span=span))

    async def release_role(self, role: str, holder: str) -> None:
        await self._whole(partial(registry.release_role, role=role, holder=holder))

    async def put_worker(self, worker: Worker) -> None:
        await self._whole(partial(registry.put_worker, worker=worker))

    async def delete_worker(self, worker: str) -> None:
        await self._whole(partial(registry.delete_worker, worker=worker))

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        return await self._read(partial(registry.workers, seen=seen, limit=limit))

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        return await self._whole(partial(registry.prune_workers, before=before, limit=limit))

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        put = partial(schedules.put_schedule, schedule=schedule, expected_version=expected_version, ring=ring)
        return await self._whole(put)

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        return await self._read(partial(schedules.get_schedules, names=names))

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        return await self._read(partial(schedules.list_schedules, after=after, limit=limit))

    async def drop_schedule(self, name: str) -> bool:
        return await self._whole(partial(schedules.drop_schedule, name=name))

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        return await self._read(partial(schedules.due_schedules, before=before, limit=limit))

    async def next_tick(self) -> datetime | None:
        return await self._read(schedules.next_tick)

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        entries = [(move, ticket_for) for move in moves]
        return await self._whole(partial(ticks.tick, entries=entries)) if entries else []

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        return await self._read(partial(ticks.ticks, name=name, before=before, limit=limit))

    async def probe(self) -> None:
        await self._connections.run(self._epochs.check, PROBE_PATIENCE)
        if self._connections.doubted:
            # A full disk accepts the probe's small write, whose page has room, and refuses a submit.
            self._connections.doubted = False
            await self._move(_try_ballast)
        await self._move(_probe)
        await self.notices()

    async def close(self) -> None:
        for batcher in (self._claims, self._renewals, self._settles, self._releases, self._gets):
            await batcher.close()
        if self._folding is not None:
            await self._folding
        await self._connections.close()

    def _test_now(self) -> int | None:
        return None if self._clock is None else to_millis(self._clock.now())

    def _batch(self, move: Callable[[Session, Sequence[Item]], Awaitable[list[T]]]) -> Batcher[Item, T]:
        """Group commit for one move; see `Batcher`."""

        async def run(items: Sequence[Item]) -> list[T]:
            if not items:
                return []
            work = self._connections.carry_out(lambda connection: move(Session(connection, self._test_now()), items))
            return await _refuse_faults(work)

        return Batcher(run, batch_items=BATCH_ITEMS, separate=HeldElsewhere, fail_waiting=True)

    async def _move(self, move: Callable[[Session], Awaitable[T]]) -> T:
        """Run a move; each of its statements commits by itself."""

        async def run(connection: Connection) -> T:
            return await move(Session(connection, self._test_now()))

        self._wrote()
        return await self._run(run)

    async def _whole(self, work: Callable[[PostgresTransaction], Awaitable[T]]) -> T:
        """Run the work as one transaction."""

        return await self._run(lambda connection: in_transaction(connection, self._test_now(), work))

    async def _snapshot(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        """Run reads of several statements in one snapshot."""

        async def run(connection: Connection) -> T:
            async with connection.transaction():
                await connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return await read(connection)

        return await self._run(run)

    async def _read(self, read: Callable[[Connection], Awaitable[T]]) -> T:
        return await self._run(read)

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        return await _refuse_faults(self._connections.run(work))

    def _wrote(self) -> None:
        """Fold the counts after every FOLD_EVERY writes, in the background."""
        self._writes += 1
        if self._writes >= FOLD_EVERY and self._folding is None:
            self._writes = 0
            self._folding = asyncio.create_task(self._fold())

    async def _fold(self) -> None:
        try:
            await self._connections.run(lambda connection: fold_counts(Session(connection, None)))
        except StoreUnavailable as error:
            logger.info("counts are folded later: %s", error)
        finally:
            self._folding = None


async def _refuse_faults(work: Awaitable[T]) -> T:
    try:
        return await work
    except Exception as error:
        raise refused(error) from error


async def _try_ballast(session: Session) -> None:
    async with session.connection.transaction(force_rollback=True):
        await execute(session.connection, _LOAD_BALLAST, {"bytes": BALLAST_BYTES})


async def _probe(session: Session) -> None:
    await execute(session.connection, _PROBE, {"now": session.test_now})
