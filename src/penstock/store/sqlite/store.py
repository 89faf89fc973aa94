"""SqliteStore: a shard in one file that one process owns. The seam documents each method."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Self

import apsw

from penstock.model.clock import Clock, SystemClock, to_millis
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
from penstock.model.journal import (
    DeliveryRecord,
    EventRetention,
    History,
    HistoryFilter,
    JournalPage,
    Parked,
    ParkedState,
    RelayState,
    RelayTotals,
    RelayWrite,
)
from penstock.model.lifecycle import Event
from penstock.model.notices import Notice, NoticeChange
from penstock.model.schedule import Due, Schedule, Ticked, TickMove, TickRecord
from penstock.model.submission import Known, Misplaced, Submission
from penstock.model.workers import EVER, DrainRequest, Seen, Worker
from penstock.store.seam import Capabilities, DueSummary, PostTickets, Share
from penstock.store.sqlite import history, journal, queries, registry, relays, schedules
from penstock.store.sqlite.connection import OUTAGES, LockFile, Readers, migrate, open_writer, unavailable
from penstock.store.sqlite.history import HistoryFolder
from penstock.store.sqlite.leases import cancel, claim, claim_next, expire, reclaim, release, renew, retype, settle
from penstock.store.sqlite.statements import load
from penstock.store.sqlite.submit import submit
from penstock.store.sqlite.sweeps import dispatch, expire_tickets, promote, prune, raise_epoch
from penstock.store.sqlite.transaction import ShardClock, SqliteTransaction
from penstock.store.sqlite.writer import Writer

FIRST_SHARD = ShardId(0)

_PROBE = load("probe")
_SHARD = load("shard")
_FOUND_SHARD = load("found_shard")
_LOAD_BALLAST = load("load_ballast")
_DROP_BALLAST = load("drop_ballast")

BALLAST_BYTES = 1 << 20
"""The free space that a disk must have for the shard to be healthy again after it has refused a write."""


class SqliteStore:
    """A shard in a file. Batches are atomic, counts exact."""

    capabilities = Capabilities()

    def __init__(self, lock: LockFile, writer: Writer, readers: Readers, clock: ShardClock, shard: ShardId) -> None:
        self.shard = shard
        self.writer = writer
        self._folder = HistoryFolder(readers, writer, clock)
        self._readers = readers
        self._lock = lock
        self._clock = clock

    @classmethod
    async def open(
        cls, path: Path, *, shard: ShardId = FIRST_SHARD, clock: Clock | None = None, keep_events: bool = True
    ) -> Self:
        """Create the file, its folder and its tables as needed, and own it until `close`.

        StoreUnavailable when another process owns it, when it belongs to another shard or to a newer Penstock, or when
        it cannot be written.
        """
        shard_clock = ShardClock(clock or SystemClock())
        return await asyncio.to_thread(cls._open, Path(path), shard, shard_clock, keep_events=keep_events)

    @classmethod
    def _open(cls, path: Path, shard: ShardId, clock: ShardClock, *, keep_events: bool) -> Self:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as undo:
                lock = LockFile.acquire(path)
                undo.callback(lock.release)
                connection = open_writer(path)
                undo.callback(connection.close)
                migrate(connection)
                _own(connection, shard, to_millis(clock.now()))
                writer = Writer(path, connection, clock, keep_events=keep_events)
                store = cls(lock, writer, Readers(path), clock, shard)
                undo.pop_all()
                return store
        except (*OUTAGES, OSError) as error:
            raise unavailable(path, error) from error

    @property
    def keeps_events(self) -> bool:
        return self.writer.keep_events

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
        return self._clock.now()

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> list[Submission]:
        return await self.writer.each(submit, [(job, ticket_for) for job in jobs])

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[None]:
        return [None] * len(jobs)

    async def find_keyed(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
        return await self.writer.run(partial(registry.find_keyed, jobs=jobs))

    async def has_keys_before(self, at: datetime) -> bool:
        return await self._readers.read(partial(registry.has_keys_before, at=at))

    async def admit(self, *, jobs: bool) -> None:
        await self.writer.run(partial(registry.admit, jobs=jobs))

    async def raise_epoch(self) -> None:
        await self.writer.run(raise_epoch)

    async def promote(self, limit: int) -> list[Event]:
        return await self.writer.run(partial(promote, limit=limit))

    async def dispatch(
        self,
        room: Mapping[BacklogKey, int],
        ticket_for: timedelta,
        post: PostTickets | None = None,
        *,
        due: bool = False,
    ) -> list[Ticket]:
        # Published after the commit: one process owns the file, and its in-process broker ends with it.
        tickets = await self.writer.run(partial(dispatch, shard=self.shard, room=room, ticket_for=ticket_for))
        if post is not None and tickets:
            await post(tickets)
        return tickets

    async def overdue_tickets(self, after: JobId | None, limit: int) -> list[JobId]:
        now = to_millis(self._clock.now())
        return await self._readers.read(partial(queries.overdue_tickets, after=after, limit=limit, now=now))

    async def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        return await self.writer.run(partial(expire_tickets, jobs=jobs))

    async def due_summary(self) -> DueSummary:
        return await self._readers.read(partial(queries.due_summary, now=to_millis(self._clock.now())))

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        claims = await self.writer.each(claim, [(ticket, worker, lease) for ticket in tickets])
        return [one for one in claims if one is not None]

    async def claim_next(self, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
        return await self.writer.run(partial(claim_next, asked=asked, worker=worker, lease=lease))

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]:
        return await self.writer.each(renew, [(held, lease) for held in leases])

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self.writer.each(settle, settlements)

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> list[Settled]:
        return await self.writer.each(release, [(lease, suspects, delay) for lease in leases])

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        await self.writer.run(partial(retype, leases=leases, type_name=type_name))

    async def reclaim(self, limit: int) -> list[Event]:
        return await self.writer.run(partial(reclaim, limit=limit))

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> list[Cancellation]:
        return await self.writer.run(partial(cancel, jobs=jobs, force=force))

    async def expire(self, limit: int) -> list[Event]:
        return await self.writer.run(partial(expire, limit=limit))

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> list[Job | None]:
        return await self._readers.read(partial(queries.get, jobs=jobs))

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        return await self._readers.read(partial(queries.page, where=where, cursor=cursor, limit=limit))

    async def counts(self) -> list[Count]:
        return await self._readers.read(queries.counts)

    async def oldest_due(self) -> dict[str, datetime]:
        return await self._readers.read(queries.oldest_due)

    async def due_before(self, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        return await self._readers.read(partial(queries.due_before, before=before, limit=limit))

    async def running_by_worker(self) -> dict[str, int]:
        return await self._readers.read(queries.running_by_worker)

    async def prune(self, keep: Retention, limit: int) -> Pruned:
        return await self.writer.run(partial(prune, keep=keep, limit=limit))

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        return await self.writer.run(partial(queries.append_log, lease=lease, lines=lines, cap=cap, first=first))

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        return await self._readers.read(partial(queries.read_log, job=job, after=after, limit=limit))

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        await self.writer.run(partial(registry.put_notices, notices=notices))

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        return await self.writer.run(partial(registry.change_notices, changes=changes))

    async def notices(self) -> list[Notice]:
        return await self._readers.read(registry.notices)

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        return await self.writer.run(partial(registry.acquire_role, role=role, holder=holder, span=span))

    async def release_role(self, role: str, holder: str) -> None:
        await self.writer.run(partial(registry.release_role, role=role, holder=holder))

    async def put_worker(self, worker: Worker) -> DrainRequest | None:
        return await self.writer.run(partial(registry.put_worker, worker=worker))

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]:
        return await self.writer.run(partial(registry.ask_to_drain, names=names, patience=patience))

    async def delete_worker(self, worker: str) -> None:
        await self.writer.run(partial(registry.delete_worker, worker=worker))

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        return await self._readers.read(partial(registry.workers, seen=seen, limit=limit))

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        return await self.writer.run(partial(registry.prune_workers, before=before, limit=limit))

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        put = partial(schedules.put_schedule, schedule=schedule, expected_version=expected_version, ring=ring)
        return await self.writer.run(put)

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        return await self._readers.read(partial(schedules.get_schedules, names=names))

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        return await self._readers.read(partial(schedules.list_schedules, after=after, limit=limit))

    async def drop_schedule(self, name: str) -> bool:
        return await self.writer.run(partial(schedules.drop_schedule, name=name))

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        return await self._readers.read(partial(schedules.due_schedules, before=before, limit=limit))

    async def next_tick(self) -> datetime | None:
        return await self._readers.read(schedules.next_tick)

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        return await self.writer.each(schedules.tick, [(move, ticket_for) for move in moves])

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        return await self._readers.read(partial(schedules.ticks, name=name, before=before, limit=limit))

    async def number_entries(self) -> int:
        return await self._folder.fold_when_due()

    async def read_journal(self, after: int, limit: int) -> JournalPage:
        return await self._readers.read(partial(journal.read_journal, after=after, limit=limit))

    async def find_number(self, at: datetime) -> int:
        return await self._readers.read(partial(journal.find_number, at=at))

    async def read_history(self, where: HistoryFilter) -> History:
        await self._folder.fold_when_due()
        return await self._readers.read(partial(history.read_history, where=where))

    async def prune_journal(self, keep: EventRetention, limit: int) -> int:
        await self._folder.fold_when_due()
        return await self.writer.run(partial(history.prune_all, keep=keep, limit=limit))

    async def relay_state(self, subscription: str) -> RelayState:
        return await self._readers.read(partial(relays.relay_state, subscription=subscription))

    async def save_relay(self, subscription: str, fence: int, write: RelayWrite) -> bool:
        return await self.writer.run(partial(relays.save_relay, subscription=subscription, fence=fence, write=write))

    async def park_again(self, subscription: str, events: Sequence[Parked]) -> None:
        await self.writer.run(partial(relays.park_again, subscription=subscription, events=events))

    async def read_parked(
        self, subscription: str, state: ParkedState, limit: int, due_before: datetime | None = None
    ) -> list[Parked]:
        read = partial(relays.read_parked, subscription=subscription, state=state, limit=limit, due_before=due_before)
        return await self._readers.read(read)

    async def read_parked_of(self, subscription: str, jobs: Sequence[JobId]) -> list[Parked]:
        return await self._readers.read(partial(relays.read_parked_of, subscription=subscription, jobs=jobs))

    async def deliveries(self, subscription: str, before: datetime | None, limit: int) -> list[DeliveryRecord]:
        read = partial(relays.deliveries, subscription=subscription, before=before, limit=limit)
        return await self._readers.read(read)

    async def relay_totals(self, subscription: str) -> RelayTotals:
        return await self._readers.read(partial(relays.relay_totals, subscription=subscription))

    async def drop_relay(self, subscription: str) -> None:
        await self.writer.run(partial(relays.drop_relay, subscription=subscription))

    async def probe(self) -> None:
        if self.writer.doubted:
            # A full disk may take the single page of a probe and still refuse a submit.
            self.writer.doubted = False
            await self.writer.run(_load_ballast)
            await self.writer.run(_drop_ballast)
        await self.writer.run(_probe)
        await self.notices()

    async def close(self) -> None:
        await self._readers.close()
        await self.writer.close()
        self._lock.release()


def _probe(tx: SqliteTransaction) -> None:
    tx.connection.execute(_PROBE, {"now": tx.now})


def _load_ballast(tx: SqliteTransaction) -> None:
    tx.connection.execute(_LOAD_BALLAST, {"bytes": BALLAST_BYTES})


def _drop_ballast(tx: SqliteTransaction) -> None:
    tx.connection.execute(_DROP_BALLAST)


def _own(connection: apsw.Connection, shard: ShardId, now: int) -> None:
    """Record the shard number in a new file; refuse the file of another shard, whose ids would never be found."""
    number = connection.execute(_SHARD).get
    if number is None:
        connection.execute(_FOUND_SHARD, {"number": shard, "now": now})
    elif number != shard:
        raise StoreUnavailable(
            f"{connection.filename} holds shard {number}, not {shard}: correct the shard map or choose another file"
        )
