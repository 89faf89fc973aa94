"""DynamoStore: a shard as a prefix in a table that many processes and shards share. The seam has the promises."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Self

from penstock.model.clock import Clock
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
from penstock.model.workers import EVER, Seen, Worker
from penstock.store.dynamodb.admission import MAX_AGE, Admissions
from penstock.store.dynamodb.history import DynamoHistory
from penstock.store.dynamodb.insertions import Inserter
from penstock.store.dynamodb.journal import DynamoJournal
from penstock.store.dynamodb.journal_items import JournalItems
from penstock.store.dynamodb.ownership import open_table, take_prefix
from penstock.store.dynamodb.registry import DynamoRegistry
from penstock.store.dynamodb.relays import DynamoRelays
from penstock.store.dynamodb.schedules import DynamoSchedules
from penstock.store.dynamodb.server_clock import instant_of
from penstock.store.dynamodb.table import DynamoTable
from penstock.store.seam import Capabilities, DueSummary, PostTickets, Share

FIRST_SHARD = ShardId(0)
DEADLINE = timedelta(seconds=5)


class DynamoStore:
    """A shard in a table. Each move is one conditional write of one job; lists and sweeps may lag about a second."""

    capabilities = Capabilities()

    def __init__(
        self,
        table: DynamoTable,
        shard: ShardId,
        prefix: str,
        *,
        keep_events: bool,
        retention: Retention,
        event_retention: EventRetention,
        admission_age: timedelta = MAX_AGE,
    ) -> None:
        self.shard = shard
        self.keeps_events = keep_events
        self.table = table
        self._retention = retention
        self._clock = table.clock
        self.admissions = Admissions(table, table.clock, prefix, admission_age)
        self.inserter = Inserter(prefix, keep_events=keep_events)
        self._registry = DynamoRegistry(table, prefix, self.admissions)
        self._schedules = DynamoSchedules(table, table.clock, prefix)
        journal = JournalItems(table, prefix, event_retention)
        self._history = DynamoHistory(journal)
        self._journal = DynamoJournal(journal, self._history, prefix, keep_events=keep_events)
        self._relays = DynamoRelays(journal, self._registry, prefix)

    @classmethod
    async def open(
        cls,
        table: str,
        *,
        shard: ShardId = FIRST_SHARD,
        clock: Clock | None = None,
        deadline: timedelta = DEADLINE,
        migrate: bool = True,
        keep_events: bool = True,
        retention: Retention | None = None,
        event_retention: EventRetention | None = None,
        admission_age: timedelta = MAX_AGE,
    ) -> Self:
        """Create the table as needed, or refuse to. `clock` is for tests alone: the shard's clock is DynamoDB's.

        Rows expire by `retention` and `event_retention`. StoreUnavailable when DynamoDB does not answer, or the table
        lacks something, has another shape or was written by a newer Penstock. See `Admissions` about `admission_age`.
        """
        opened = await open_table(table, clock=clock, deadline=deadline, create=migrate)
        try:
            prefix = await take_prefix(opened, shard)
        except BaseException:
            await opened.close()
            raise
        return cls(
            opened,
            shard,
            prefix,
            keep_events=keep_events,
            retention=retention or Retention(),
            event_retention=event_retention or EventRetention(),
            admission_age=admission_age,
        )

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
        return instant_of(self._clock)

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> list[Submission]:
        raise NotImplementedError

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[None]:
        return [None] * len(jobs)

    async def find_keyed(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
        raise NotImplementedError

    async def has_keys_before(self, at: datetime) -> bool:
        raise NotImplementedError

    async def admit(self, *, jobs: bool) -> None:
        await self.admissions.admit(jobs=jobs)

    async def raise_epoch(self) -> None:
        raise NotImplementedError

    async def promote(self, limit: int) -> list[Event]:
        raise NotImplementedError

    async def dispatch(
        self, room: Mapping[BacklogKey, int], ticket_for: timedelta, post: PostTickets | None = None
    ) -> list[Ticket]:
        raise NotImplementedError

    async def overdue_tickets(self, after: JobId | None, limit: int) -> list[JobId]:
        raise NotImplementedError

    async def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        raise NotImplementedError

    async def due_summary(self) -> DueSummary:
        raise NotImplementedError

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        raise NotImplementedError

    async def claim_next(self, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
        raise NotImplementedError

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]:
        raise NotImplementedError

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        raise NotImplementedError

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> list[Settled]:
        raise NotImplementedError

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        raise NotImplementedError

    async def reclaim(self, limit: int) -> list[Event]:
        raise NotImplementedError

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> list[Cancellation]:
        raise NotImplementedError

    async def expire(self, limit: int) -> list[Event]:
        raise NotImplementedError

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> list[Job | None]:
        raise NotImplementedError

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        raise NotImplementedError

    async def counts(self) -> list[Count]:
        raise NotImplementedError

    async def oldest_due(self) -> dict[str, datetime]:
        raise NotImplementedError

    async def due_before(self, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        raise NotImplementedError

    async def running_by_worker(self) -> dict[str, int]:
        raise NotImplementedError

    async def prune(self, keep: Retention, limit: int) -> Pruned:
        raise NotImplementedError

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        raise NotImplementedError

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        raise NotImplementedError

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        await self._registry.put_notices(notices)

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        return await self._registry.change_notices(changes)

    async def notices(self) -> list[Notice]:
        return await self._registry.notices()

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        return await self._registry.acquire_role(role, holder, span)

    async def release_role(self, role: str, holder: str) -> None:
        await self._registry.release_role(role, holder)

    async def put_worker(self, worker: Worker) -> None:
        await self._registry.put_worker(worker)

    async def delete_worker(self, worker: str) -> None:
        await self._registry.delete_worker(worker)

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        return await self._registry.workers(seen, limit)

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        return await self._registry.prune_workers(before, limit)

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        return await self._schedules.put_schedule(schedule, expected_version, ring)

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        return await self._schedules.get_schedules(names)

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        return await self._schedules.schedules(after, limit)

    async def drop_schedule(self, name: str) -> bool:
        return await self._schedules.drop_schedule(name)

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        return await self._schedules.due_schedules(before, limit)

    async def next_tick(self) -> datetime | None:
        return await self._schedules.next_tick()

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        return await self._schedules.tick(moves, ticket_for)

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        return await self._schedules.ticks(name, before, limit)

    async def number_entries(self) -> int:
        return await self._journal.number_entries()

    async def read_journal(self, after: int, limit: int) -> JournalPage:
        return await self._journal.read_journal(after, limit)

    async def find_number(self, at: datetime) -> int:
        return await self._journal.find_number(at)

    async def read_history(self, where: HistoryFilter) -> History:
        await self._journal.number_entries()
        return await self._history.read_history(where)

    async def prune_journal(self, keep: EventRetention, limit: int) -> int:
        return await self._journal.prune_journal(keep, limit)

    async def relay_state(self, subscription: str) -> RelayState:
        return await self._relays.relay_state(subscription)

    async def save_relay(self, subscription: str, fence: int, write: RelayWrite) -> bool:
        return await self._relays.save_relay(subscription, fence, write)

    async def park_again(self, subscription: str, events: Sequence[Parked]) -> None:
        await self._relays.park_again(subscription, events)

    async def read_parked(
        self, subscription: str, state: ParkedState, limit: int, due_before: datetime | None = None
    ) -> list[Parked]:
        return await self._relays.read_parked(subscription, state, limit, due_before)

    async def read_parked_of(self, subscription: str, jobs: Sequence[JobId]) -> list[Parked]:
        return await self._relays.read_parked_of(subscription, jobs)

    async def deliveries(self, subscription: str, before: datetime | None, limit: int) -> list[DeliveryRecord]:
        return await self._relays.deliveries(subscription, before, limit)

    async def relay_totals(self, subscription: str) -> RelayTotals:
        return await self._relays.relay_totals(subscription)

    async def drop_relay(self, subscription: str) -> None:
        await self._relays.drop_relay(subscription)

    async def probe(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        await self.table.close()
