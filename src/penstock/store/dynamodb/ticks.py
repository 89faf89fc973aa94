"""The tick move: per decision one transaction of the schedule, its records, its jobs, and the jobs that yield to them.

Everything a decision depends on is read consistently; the schedule and each job that yields are then swapped by their
tokens, records and jobs are put where there are none. A refused transaction is decided again from a new reading, by
which it is stale, or goes on.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.errors import Invalid, StoreUnavailable, TooLarge
from penstock.model.ids import JobId
from penstock.model.lifecycle import Event, Move, State
from penstock.model.schedule import Decision, Schedule, Ticked, TickMove, TickRecord, without_jobs
from penstock.model.submission import Inserted, Misplaced
from penstock.store.answers import group_by
from penstock.store.dynamodb.concurrency import gather_bounded
from penstock.store.dynamodb.conditions import ABSENT, ItemCondition, Part, Update, put_part, update_part
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.insertions import JobInsertion
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import millis_key, new_token
from penstock.store.dynamodb.moves import event_of
from penstock.store.dynamodb.schedule_items import Activity, StoredSchedule, activity_of, listed_attributes, place_of
from penstock.store.dynamodb.schedules import DynamoSchedules
from penstock.store.dynamodb.table import TRANSACTION_PARTS, TransactionRefused
from penstock.store.dynamodb.values import Item, ItemKey
from penstock.store.rounds import run_rounds
from penstock.store.rows import optional_millis

TICK_ATTEMPTS = 10
CONCURRENT_TICKS = 16
REFUSED = Ticked(applied=False)

logger = logging.getLogger(__name__)


class ScheduleReading(Struct, frozen=True):
    """What one decision is applied to: the schedule, the records of its instants, and the jobs that it may concern."""

    stored: StoredSchedule
    records: Mapping[int, Item]
    heads: Mapping[JobId, Head]
    activity: Activity


class Yielded(Struct, frozen=True):
    """A job that yields: as it was read, and as it is to be."""

    before: Head
    after: Head

    @property
    def event(self) -> Event:
        return event_of(self.before, self.after, Move.CANCEL, self.after.course.cancel_requested or 0)


class TickPlan(Struct, frozen=True):
    """A transaction, and what it means."""

    parts: Sequence[Part]
    insertions: Sequence[JobInsertion]
    yielded: Sequence[Yielded]


class DynamoTicks:
    """The ticks of one shard's schedules."""

    def __init__(self, context: ShardContext, schedules: DynamoSchedules) -> None:
        self._context = context
        self._table = context.table
        self._schedules = schedules

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        """One answer each, in order; of two moves of one schedule the first is moved first."""
        admission = (await self._context.admissions.read()).admission
        for new in (new for move in moves for new in move.jobs):
            if not admission.takes(new.ring):
                raise Misplaced(new).refusal

        async def apply(round: Sequence[TickMove]) -> list[Ticked]:
            return await gather_bounded([self._apply_alone(move, ticket_for) for move in round], CONCURRENT_TICKS)

        return await run_rounds(moves, lambda move: move.decision.name, apply)

    async def _apply_alone(self, move: TickMove, ticket_for: timedelta) -> Ticked:
        now = self._table.clock.now()
        if _early(move, now) or not _whole(move):
            return REFUSED
        try:
            insertions = [self._context.inserter.plan(new, now, ticket_for, Move.TICK) for new in move.jobs]
            return await self._apply(move, insertions, now)
        except (Invalid, TooLarge) as error:
            logger.error("a tick of schedule %s cannot be kept: %s", move.decision.name, error)
            # Without it, the schedule would be decided again at once, endlessly.
            return await self._apply(without_jobs(move, f"the store cannot keep this: {error}"), [], now)

    async def _apply(self, move: TickMove, insertions: Sequence[JobInsertion], now: int) -> Ticked:
        await self._table.put_all([item for one in insertions for item in one.beside()])
        for _ in range(TICK_ATTEMPTS):
            reading = await self._read(move)
            if reading is None or not _decides(move.decision, reading.stored):
                return REFUSED
            plan = self._plan(move, insertions, reading, now)
            try:
                await self._table.transact(plan.parts, new_token())
            except TransactionRefused:
                continue
            return await self._complete(plan)
        raise StoreUnavailable(f"schedule {move.decision.name!r} and its jobs change all the time; retry")

    async def _complete(self, plan: TickPlan) -> Ticked:
        inserted = [Inserted(one.new, one.head.origin.created, Move.TICK) for one in plan.insertions]
        after = [one.after for one in plan.yielded]
        for head in (*(one.head for one in plan.insertions), *after):
            self._context.heads.remember(head)
        await self._context.record_ends(after)
        events = [one.event for one in inserted]
        return Ticked(True, [one.job for one in inserted], events, [one.event for one in plan.yielded])

    # -- reading

    async def _read(self, move: TickMove) -> ScheduleReading | None:
        found = await self._schedules.read([move.decision.name])
        if not found:
            return None
        (stored,) = found
        partition = self._schedules.records(stored)
        keys = [ItemKey(partition, millis_key(to_millis(record.at))) for record in move.records]
        records, earlier = await self._table.batch_get(keys), await self._schedules.jobs_of(stored)
        heads = await self._context.heads.read({*earlier, *move.decision.cancel, *(new.id for new in move.jobs)})
        activity = activity_of(stored, earlier, heads)
        by_instant = {int(key.sk): item for key, item in records.items()}
        return ScheduleReading(stored, by_instant, heads, activity)

    # -- deciding

    def _plan(self, move: TickMove, insertions: Sequence[JobInsertion], reading: ScheduleReading, now: int) -> TickPlan:
        fresh = [record for record in move.records if _is_fresh(record, reading.records)]
        added = [(record.job, to_millis(record.at)) for record in fresh if record.job is not None]
        named = dict(added)
        inserted = [one for one in insertions if one.head.id in named and one.head.id not in reading.heads]
        parts = [
            self._schedule_part(move, reading, added),
            *self._schedules.waiting_parts(_advanced(move, reading.stored.schedule)),
            *(self._record_part(record, reading) for record in fresh),
            *(part for one in inserted for part in one.parts()),
        ]
        yielded = self._yielding(move, reading, now)
        while len(more := self._yield_parts(yielded)) > TRANSACTION_PARTS - len(parts):
            # There is no room for more: the rest is still active, and yields to the next tick.
            yielded = yielded[:-1]
        return TickPlan([*parts, *more], inserted, yielded)

    def _schedule_part(self, move: TickMove, reading: ScheduleReading, added: Sequence[tuple[JobId, int]]) -> Part:
        """The guard: the schedule is still the one that was read, token by token."""
        stored = reading.stored
        after = _advanced(move, stored.schedule)
        next_at = optional_millis(after.next_tick_at)
        sets = {
            "nt": next_at,
            "pt": optional_millis(after.pending_tick_at),
            "lt": optional_millis(after.last_tick_at),
            "x": new_token(),
            **place_of(self._context.prefix, after.name, None if after.paused else next_at),
            **listed_attributes(reading.activity, added, reading.heads),
        }
        same = ItemCondition("x = :token", token=stored.token)
        return update_part(Update(self._schedules.key(after.name), sets, condition=same))

    def _record_part(self, record: TickRecord, reading: ScheduleReading) -> Part:
        """The guard: a tick that has a job keeps it. Only a skip may still become a job."""
        at = to_millis(record.at)
        item = {
            "pk": self._schedules.records(reading.stored),
            "sk": millis_key(at),
            "j": record.job,
            "r": record.skipped,
            "ttl": -(-(at + millis(self._context.retention.failed)) // 1000),
        }
        return put_part(item, ItemCondition("attribute_not_exists(j)") if at in reading.records else ABSENT)

    def _yielding(self, move: TickMove, reading: ScheduleReading, now: int) -> list[Yielded]:
        """The schedule's own jobs that are cancelled, or marked where they run."""
        own = [reading.heads[job] for job in move.ousted if job in reading.heads]
        moved = [(head, self._context.moves.cancel(head, now, force=False)) for head in own if _belongs(head, move)]
        return [Yielded(before, after) for before, after in moved if after is not None]

    def _yield_parts(self, yielded: Sequence[Yielded]) -> list[Part]:
        """A worker that runs some of them learns of it from one write to its sheet."""
        running = [one.before for one in yielded if one.before.state is State.RUNNING]
        marked = group_by(running, lambda head: head.worker or "")
        return [
            *(self._context.swap_part(one.before, one.after) for one in yielded),
            *(self._context.sheets.cancel_part(worker, heads) for worker, heads in marked.items()),
        ]


def _early(move: TickMove, now: int) -> bool:
    """Whether one of its ticks is later than the shard's time."""
    instants = [record.at for record in move.records] + [verdict.at for verdict in move.decision.verdicts]
    return any(at > from_millis(now) for at in instants)


def _whole(move: TickMove) -> bool:
    """Whether each record is of a job or of a skip."""
    broken = [record for record in move.records if (record.job is None) == (record.skipped is None)]
    if broken:
        logger.error("a tick of schedule %s has neither a job nor a reason", move.decision.name)
    return not broken


def _decides(decision: Decision, stored: StoredSchedule) -> bool:
    """The guard of every tick: the schedule is the one that was read, and no tick was decided since."""
    schedule = stored.schedule
    return (
        schedule.version == decision.version
        and optional_millis(schedule.next_tick_at) == optional_millis(decision.expected_tick_at)
        and optional_millis(schedule.pending_tick_at) == optional_millis(decision.expected_pending_at)
        and (decision.by_hand or not schedule.paused)
    )


def _advanced(move: TickMove, schedule: Schedule) -> Schedule:
    ticks = [record.at for record in move.records]
    last = max([*ticks, *([] if schedule.last_tick_at is None else [schedule.last_tick_at])], default=None)
    return replace(
        schedule,
        next_tick_at=move.decision.next_tick_at,
        pending_tick_at=move.decision.pending_tick_at,
        last_tick_at=last,
    )


def _is_fresh(record: TickRecord, known: Mapping[int, Item]) -> bool:
    """Whether a record is to be written: there is none, or only a skip where a job is made up for."""
    before = known.get(to_millis(record.at))
    return before is None or ("j" not in before and record.job is not None)


def _belongs(head: Head, move: TickMove) -> bool:
    return head.origin.schedule == move.decision.name
