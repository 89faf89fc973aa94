"""DynamoStore: a shard as a prefix in a table that many processes and shards share. The seam has the promises."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
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
from penstock.model.workers import EVER, DrainRequest, Seen, Worker
from penstock.store.batcher import Batcher
from penstock.store.dynamodb import logs, losses, queries, sweeps
from penstock.store.dynamodb.admission import MAX_AGE, Admissions
from penstock.store.dynamodb.conditions import Update
from penstock.store.dynamodb.context import new_context
from penstock.store.dynamodb.history import DynamoHistory
from penstock.store.dynamodb.journal import DynamoJournal
from penstock.store.dynamodb.journal_items import JournalItems
from penstock.store.dynamodb.leases import GivenBack, Wanted, claim, release, retype, settle
from penstock.store.dynamodb.ownership import open_table, take_prefix
from penstock.store.dynamodb.queries import COUNTED_MAX
from penstock.store.dynamodb.registry import DynamoRegistry
from penstock.store.dynamodb.relays import DynamoRelays
from penstock.store.dynamodb.renewals import Renewals
from penstock.store.dynamodb.schedules import DynamoSchedules
from penstock.store.dynamodb.server_clock import instant_of
from penstock.store.dynamodb.submits import Submits
from penstock.store.dynamodb.table import DynamoTable
from penstock.store.dynamodb.ticks import DynamoTicks
from penstock.store.dynamodb.values import ItemKey
from penstock.store.seam import Capabilities, DueSummary, PostTickets, Share

FIRST_SHARD = ShardId(0)
DEADLINE = timedelta(seconds=5)
TICK_VERDICTS = 49
"""A tick is one transaction: the schedule, and a record and a job for each verdict."""


class DynamoStore:
    """A shard in a table. Each move is one conditional write of one job; lists and sweeps may lag about a second."""

    capabilities = Capabilities(
        tick_verdicts=TICK_VERDICTS,
        rows_expire=True,
        exact_counts=False,
        counts_up_to=COUNTED_MAX,
        prompt_lines=False,
        dispatches_due=True,
    )

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
        self._clock = table.clock
        self.admissions = Admissions(table, table.clock, prefix, admission_age)
        context = self._context = new_context(
            table, shard, prefix, self.admissions, keep_events=keep_events, retention=retention
        )
        self._submits = Submits(context)
        self._renewals = Renewals(context)
        self._claims = Batcher(partial(claim, context))
        self._settles = Batcher(partial(settle, context))
        self._releases = Batcher(partial(release, context))
        self._gets = Batcher(context.jobs.get)
        self._registry = DynamoRegistry(table, prefix, self.admissions)
        self._schedules = DynamoSchedules(context)
        self._ticks = DynamoTicks(context, self._schedules)
        journal = JournalItems(table, prefix, event_retention)
        self._history = DynamoHistory(journal)
        self._journal = DynamoJournal(journal, self._history, keep_events=keep_events)
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
        return await self._submits.submit(jobs, ticket_for) if jobs else []

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[None]:
        return [None] * len(jobs)

    async def find_keyed(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
        return await self._submits.find_keyed(jobs)

    async def has_keys_before(self, at: datetime) -> bool:
        return await self._submits.has_keys_before(at)

    async def admit(self, *, jobs: bool) -> None:
        await self.admissions.admit(jobs=jobs)

    async def raise_epoch(self) -> None:
        await losses.raise_epoch(self._context)
        await self.expire_tickets(None)

    async def promote(self, limit: int) -> list[Event]:
        return await sweeps.promote(self._context, limit)

    async def dispatch(
        self,
        room: Mapping[BacklogKey, int],
        ticket_for: timedelta,
        post: PostTickets | None = None,
        *,
        due: bool = False,
    ) -> list[Ticket]:
        return await sweeps.dispatch(self._context, room, ticket_for, post, due=due)

    async def overdue_tickets(self, after: JobId | None, limit: int) -> list[JobId]:
        return await sweeps.overdue_tickets(self._context, after, limit)

    async def expire_tickets(self, jobs: Sequence[JobId] | None) -> int:
        return await sweeps.expire_tickets(self._context, jobs)

    async def due_summary(self) -> DueSummary:
        return await sweeps.due_summary(self._context)

    async def claim(self, tickets: Sequence[Ticket], worker: str, lease: timedelta) -> list[Claim]:
        claims = await self._claims.submit([Wanted(ticket, worker, lease) for ticket in tickets])
        return [one for one in claims if one is not None]

    async def claim_next(self, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
        return await sweeps.claim_next(self._context, asked, worker, lease)

    async def renew(self, worker: str, leases: Sequence[Lease], lease: timedelta) -> list[Renewal]:
        return await self._renewals.renew(worker, leases, lease) if leases else []

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        settled = await self._settles.submit(settlements)
        self._note_ends(settled)
        return settled

    async def release(
        self, leases: Sequence[Lease], *, suspects: bool = False, delay: timedelta | None = None
    ) -> list[Settled]:
        settled = await self._releases.submit([GivenBack(lease, suspects, delay) for lease in leases])
        self._note_ends(settled)
        return settled

    async def retype(self, leases: Sequence[Lease], type_name: str) -> None:
        await retype(self._context, leases, type_name)

    async def reclaim(self, limit: int) -> list[Event]:
        return await losses.reclaim(self._context, limit)

    async def cancel(self, jobs: Sequence[JobId], *, force: bool = False) -> list[Cancellation]:
        return await losses.cancel(self._context, jobs, force=force)

    async def expire(self, limit: int) -> list[Event]:
        return await sweeps.expire(self._context, limit)

    async def get(self, jobs: Sequence[JobId], patience: timedelta | None = None) -> list[Job | None]:
        return await self._gets.submit(jobs) if jobs else []

    async def page(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        return await queries.page(self._context, where, cursor, limit)

    async def counts(self) -> list[Count]:
        return await queries.counts(self._context)

    async def oldest_due(self) -> dict[str, datetime]:
        return await queries.oldest_due(self._context)

    async def due_before(self, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        return await queries.due_before(self._context, before, limit)

    async def running_by_worker(self) -> dict[str, int]:
        return await queries.running_by_worker(self._context)

    async def prune(self, keep: Retention, limit: int) -> Pruned:
        """Nothing: rows expire by themselves."""
        return Pruned(0)

    async def append_log(self, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None = None) -> bool:
        return await logs.append_log(self._context, lease, lines, cap, first)

    async def read_log(self, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
        return await logs.read_log(self._context, job, after, limit)

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

    async def put_worker(self, worker: Worker) -> DrainRequest | None:
        return await self._registry.put_worker(worker)

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]:
        return await self._registry.ask_to_drain(names, patience)

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
        return await self._ticks.tick(moves, ticket_for)

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
        await self.table.update(Update(ItemKey(f"{self._context.prefix}shard", "probe"), {"at": self._clock.now()}))
        await self.notices()

    async def close(self) -> None:
        for batcher in (self._claims, self._settles, self._releases, self._gets, self._journal):
            await batcher.close()
        await self._context.ended.write()
        await self.table.close()

    def _note_ends(self, settled: Sequence[Settled]) -> None:
        for one in settled:
            self._renewals.end(one.job, one.fence)
