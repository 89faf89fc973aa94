"""PostgresStore: the whole shard, in a database that any number of processes share. The promises stand in the seam."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Self

from penstock.model.clock import Clock, SystemClock, millis
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
from penstock.store.postgres import journal, queries, registry, relays, schedules
from penstock.store.postgres import registry as admission
from penstock.store.postgres import schedules as ticks
from penstock.store.postgres.connection import PostgresAddress
from penstock.store.postgres.epoch import EpochWatch, raise_epoch
from penstock.store.postgres.leases import cancel, claim, claim_next, expire, reclaim, release, renew, retype, settle
from penstock.store.postgres.migrate import bring_up_to_date
from penstock.store.postgres.ownership import found_journal, take_ownership, warn_of_lost_commits
from penstock.store.postgres.partitions import Partitions
from penstock.store.postgres.pool import ConnectionPool
from penstock.store.postgres.server_clock import ServerClock
from penstock.store.postgres.sessions import Sessions
from penstock.store.postgres.statements import Connection, Session, execute, load
from penstock.store.postgres.submit import KeyedSubmits, submit
from penstock.store.postgres.sweeps import dispatch, expire_tickets, post_marked, promote, prune
from penstock.store.seam import Capabilities, DueSummary, PostTickets, Share

FIRST_SHARD = ShardId(0)
DEADLINE = timedelta(seconds=5)
PROBE_PATIENCE = timedelta(milliseconds=500)
CONNECTIONS = 10
BALLAST_BYTES = 1 << 20
"""The free space that the disk must have for the shard to be healthy again after it refused a write."""

_PROBE = load("probe")
_LOAD_BALLAST = load("load_ballast")


class PostgresStore:
    """A shard in a database. Counts are exact; a batch may become visible in parts."""

    capabilities = Capabilities()

    def __init__(
        self, connections: ConnectionPool, clock: Clock | None, shard: ShardId, *, keep_events: bool = True
    ) -> None:
        self.shard = shard
        self._clock = clock
        self._connections = connections
        self._sessions = Sessions(connections, clock, keep_events=keep_events)
        self._epochs = EpochWatch(self._sessions.test_now)
        connections.on_restored = self._epochs.follow
        self._timepiece = ServerClock(lambda: self._sessions.read(queries.now), SystemClock())
        self._partitions = Partitions()
        self._keyed_submits = KeyedSubmits(self._sessions.move, SystemClock())
        self._claims = self._sessions.batch(claim)
        self._renewals = self._sessions.batch(renew)
        self._settles = self._sessions.batch(settle)
        self._releases = self._sessions.batch(release)
        self._gets = self._sessions.batch(queries.get)

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
        keep_events: bool = True,
    ) -> Self:
        """Create the tables as needed, or refuse to. `clock` is for tests alone: the shard's clock is the server's.

        StoreUnavailable when the server does not answer within the deadline, or when the database lacks tables, or
        belongs to another shard or to a newer Penstock.
        """
        store = cls(
            ConnectionPool(PostgresAddress.parse(url), deadline, connections), clock, shard, keep_events=keep_events
        )
        try:
            await bring_up_to_date(url, store._connections, allowed=migrate)
            await store._connections.run(store._prepare)
            await store._sessions.move(_probe)
            await store._connections.run(store._epochs.check)
            store._connections.on_connected = store._epochs.check
            await store._sessions.whole(store._partitions.make_ahead)
        except BaseException:
            await store.close()
            raise
        return store

    async def _prepare(self, connection: Connection) -> None:
        shown = self._connections.address.shown
        await take_ownership(connection, self.shard, shown, self._sessions.test_now())
        await found_journal(connection, keep_events=self.keeps_events)
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
            return await self._sessions.move(partial(submit, entries=entries)) if entries else []
        return await self._keyed_submits.submit(entries)

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[None]:
        return [None] * len(jobs)

    async def find_keyed(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
        return await self._sessions.read(partial(admission.find_keyed, jobs=jobs))

    async def has_keys_before(self, at: datetime) -> bool:
        return await self._sessions.read(partial(admission.has_keys_before, at=at))

    async def admit(self, *, jobs: bool) -> None:
        await self._sessions.whole(partial(admission.admit, jobs=jobs))

    async def raise_epoch(self) -> None:
        await self._sessions.whole(partial(raise_epoch, restored=True))

    async def promote(self, limit: int) -> list[Event]:
        return await self._sessions.move(partial(promote, limit=limit))

    async def dispatch(
        self,
        room: Mapping[BacklogKey, int],
        ticket_for: timedelta,
        post: PostTickets | None = None,
        *,
        due: bool = False,
    ) -> list[Ticket]:
        marked = partial(dispatch, shard=self.shard, room=room, ticket_for=ticket_for)
        return await self._sessions.move(marked if post is None else partial(post_marked, marked=marked, post=post))

    async def overdue_tickets(self, after: JobId | None, limit: int) -> list[JobId]:
        return await self._sessions.read(
            partial(queries.overdue_tickets, after=after, limit=limit, given=self._sessions.test_now())
        )

    async def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        return await self._sessions.move(partial(expire_tickets, jobs=jobs))

    async def due_summary(self) -> DueSummary:
        return await self._sessions.read(partial(queries.due_summary, given=self._sessions.test_now()))

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        self._sessions.note_write()
        span = millis(lease)
        claims = await self._claims.submit([(ticket, worker, span) for ticket in tickets])
        return [one for one in claims if one is not None]

    async def claim_next(self, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
        return await self._sessions.move(partial(claim_next, asked=asked, worker=worker, lease=lease))

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]:
        return await self._renewals.submit([(held, lease) for held in leases])

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self._sessions.note_write()
        return await self._settles.submit(settlements)

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> list[Settled]:
        return await self._releases.submit([(lease, suspects, delay) for lease in leases])

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        await self._sessions.move(partial(retype, leases=leases, type_name=type_name))

    async def reclaim(self, limit: int) -> list[Event]:
        return await self._sessions.move(partial(reclaim, limit=limit))

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> list[Cancellation]:
        return await self._sessions.move(partial(cancel, jobs=jobs, force=force))

    async def expire(self, limit: int) -> list[Event]:
        return await self._sessions.move(partial(expire, limit=limit))

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> list[Job | None]:
        return await self._gets.submit(jobs)

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        return await self._sessions.snapshot(partial(queries.page, where=where, cursor=cursor, limit=limit))

    async def counts(self) -> list[Count]:
        return await self._sessions.read(queries.counts)

    async def oldest_due(self) -> dict[str, datetime]:
        return await self._sessions.read(queries.oldest_due)

    async def due_before(self, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        return await self._sessions.read(partial(queries.due_before, before=before, limit=limit))

    async def running_by_worker(self) -> dict[str, int]:
        return await self._sessions.read(queries.running_by_worker)

    async def prune(self, keep: Retention, limit: int) -> Pruned:
        await self._sessions.whole(self._partitions.make_ahead)
        dropped = await self._sessions.whole(partial(self._partitions.drop_past, keep=keep))
        pruned = await self._sessions.whole(partial(prune, keep=keep, limit=max(0, limit - dropped.jobs)))
        await self.number_entries()
        return Pruned(dropped.jobs + pruned.jobs, dropped.owners + pruned.owners)

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        return await self._sessions.whole(partial(queries.append_log, lease=lease, lines=lines, cap=cap, first=first))

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        return await self._sessions.read(partial(queries.read_log, job=job, after=after, limit=limit))

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        await self._sessions.whole(partial(registry.put_notices, notices=notices))

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        return await self._sessions.whole(partial(registry.change_notices, changes=changes))

    async def notices(self) -> list[Notice]:
        return await self._sessions.read(registry.notices)

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        return await self._sessions.whole(partial(registry.acquire_role, role=role, holder=holder, span=span))

    async def release_role(self, role: str, holder: str) -> None:
        await self._sessions.whole(partial(registry.release_role, role=role, holder=holder))

    async def put_worker(self, worker: Worker) -> DrainRequest | None:
        return await self._sessions.whole(partial(registry.put_worker, worker=worker))

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]:
        return await self._sessions.whole(partial(registry.ask_to_drain, names=names, patience=patience))

    async def delete_worker(self, worker: str) -> None:
        await self._sessions.whole(partial(registry.delete_worker, worker=worker))

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        return await self._sessions.read(partial(registry.workers, seen=seen, limit=limit))

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        return await self._sessions.whole(partial(registry.prune_workers, before=before, limit=limit))

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        put = partial(schedules.put_schedule, schedule=schedule, expected_version=expected_version, ring=ring)
        return await self._sessions.whole(put)

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        return await self._sessions.read(partial(schedules.get_schedules, names=names))

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        return await self._sessions.read(partial(schedules.list_schedules, after=after, limit=limit))

    async def drop_schedule(self, name: str) -> bool:
        return await self._sessions.whole(partial(schedules.drop_schedule, name=name))

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        return await self._sessions.read(partial(schedules.due_schedules, before=before, limit=limit))

    async def next_tick(self) -> datetime | None:
        return await self._sessions.read(schedules.next_tick)

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        entries = [(move, ticket_for) for move in moves]
        return await self._sessions.whole(partial(ticks.tick, entries=entries)) if entries else []

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        return await self._sessions.read(partial(ticks.ticks, name=name, before=before, limit=limit))

    @property
    def keeps_events(self) -> bool:
        return self._sessions.keep_events

    async def number_entries(self) -> int:
        return await self._sessions.read(journal.number_entries)

    async def read_journal(self, after: int, limit: int) -> JournalPage:
        return await self._sessions.read(partial(journal.read_journal, after=after, limit=limit))

    async def find_number(self, at: datetime) -> int:
        return await self._sessions.read(partial(journal.find_number, at=at))

    async def read_history(self, where: HistoryFilter) -> History:
        await self.number_entries()
        return await self._sessions.snapshot(partial(journal.read_history, where=where))

    async def prune_journal(self, keep: EventRetention, limit: int) -> int:
        await self.number_entries()
        return await self._sessions.whole(partial(journal.prune_journal, keep=keep, limit=limit))

    async def relay_state(self, subscription: str) -> RelayState:
        return await self._sessions.read(partial(relays.relay_state, subscription=subscription))

    async def save_relay(self, subscription: str, fence: int, write: RelayWrite) -> bool:
        return await self._sessions.whole(
            partial(relays.save_relay, subscription=subscription, fence=fence, write=write)
        )

    async def park_again(self, subscription: str, events: Sequence[Parked]) -> None:
        await self._sessions.whole(partial(relays.park_again, subscription=subscription, events=events))

    async def read_parked(
        self, subscription: str, state: ParkedState, limit: int, due_before: datetime | None = None
    ) -> list[Parked]:
        where = partial(relays.read_parked, subscription=subscription, state=state, limit=limit, due_before=due_before)
        return await self._sessions.read(where)

    async def read_parked_of(self, subscription: str, jobs: Sequence[JobId]) -> list[Parked]:
        return await self._sessions.read(partial(relays.read_parked_of, subscription=subscription, jobs=jobs))

    async def deliveries(self, subscription: str, before: datetime | None, limit: int) -> list[DeliveryRecord]:
        return await self._sessions.read(
            partial(relays.deliveries, subscription=subscription, before=before, limit=limit)
        )

    async def relay_totals(self, subscription: str) -> RelayTotals:
        return await self._sessions.snapshot(partial(relays.relay_totals, subscription=subscription))

    async def drop_relay(self, subscription: str) -> None:
        await self._sessions.whole(partial(relays.drop_relay, subscription=subscription))

    async def probe(self) -> None:
        await self._connections.run(self._epochs.check, PROBE_PATIENCE)
        if self._connections.doubted:
            # A full disk accepts the probe's small write, whose page has room, and refuses a submit.
            self._connections.doubted = False
            await self._sessions.move(_try_ballast)
        await self._sessions.move(_probe)
        await self.notices()

    async def close(self) -> None:
        for batcher in (self._claims, self._renewals, self._settles, self._releases, self._gets):
            await batcher.close()
        await self._sessions.close()
        await self._connections.close()


async def _try_ballast(session: Session) -> None:
    async with session.connection.transaction(force_rollback=True):
        await execute(session.connection, _LOAD_BALLAST, {"bytes": BALLAST_BYTES})


async def _probe(session: Session) -> None:
    await execute(session.connection, _PROBE, {"now": session.test_now})
