"""The tick move: a schedule advanced, its jobs inserted and its ticks recorded, in one write or not at all."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from penstock.model.ids import JobId
from penstock.model.lifecycle import Move
from penstock.model.schedule import Ticked, TickMove, TickRecord, without_jobs
from penstock.model.submission import Misplaced, Submission
from penstock.model.timing import from_millis, to_millis
from penstock.store.batching import run_rounds
from penstock.store.postgres.arrays import bigints, booleans, optional_uuids, texts
from penstock.store.postgres.cancel import yield_jobs
from penstock.store.postgres.faults import FAULTS, refused
from penstock.store.postgres.schedules import ceil_millis
from penstock.store.postgres.statements import Connection, execute, load, query
from penstock.store.postgres.submit import insert
from penstock.store.postgres.transaction import PostgresTransaction
from penstock.store.rows import Row, optional_millis

_TICK = load("tick")
_RECORD_TICKS = load("record_ticks")
_TICKS = load("ticks")
_PRUNE_TICKS = load("prune_ticks")

FOREVER = (1 << 63) - 1
REFUSED = Ticked(applied=False)

Entry = tuple[TickMove, timedelta]

logger = logging.getLogger(__name__)


async def tick(tx: PostgresTransaction, entries: Sequence[Entry]) -> list[Ticked]:
    """One answer each, in order; of two moves of one schedule the first is moved first."""
    return await run_rounds(entries, lambda one: one[0].decision.name, partial(_tick, tx))


async def ticks(connection: Connection, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
    """Newest first."""
    scope = {"name": name, "before": FOREVER if before is None else ceil_millis(before), "limit": limit}
    return [
        TickRecord(from_millis(tick_at), job, skipped)
        for tick_at, job, skipped in await query(connection, _TICKS, scope)
    ]


async def prune_ticks(tx: PostgresTransaction, until: int, limit: int) -> None:
    """At most `limit` records of ticks up to that instant, the oldest first."""
    await execute(tx.connection, _PRUNE_TICKS, {"until": until, "limit": limit})


async def _tick(tx: PostgresTransaction, entries: Sequence[Entry]) -> list[Ticked]:
    """In a round each schedule is named once."""
    ticked = await _apply_all(tx, [entry for entry in entries if not _early(entry[0], tx.at)])
    tx.record(event for one in ticked.values() for event in one.events)
    return [ticked.get(move.decision.name, REFUSED) for move, _ in entries]


def _early(move: TickMove, now: datetime) -> bool:
    """Whether one of its ticks has not come yet, by the shard's clock."""
    instants = [record.at for record in move.records] + [verdict.at for verdict in move.decision.verdicts]
    return any(at > now for at in instants)


async def _apply_all(tx: PostgresTransaction, entries: Sequence[Entry]) -> dict[str, Ticked]:
    """All in a few statements; if one breaks an invariant of the tables, each by itself, that one without its jobs."""
    if not entries:
        return {}
    try:
        async with tx.whole():
            return await _apply(tx, entries)
    except FAULTS:
        # By name, as in the one statement for all: two batches must not wait for each other.
        by_name = sorted(entries, key=lambda entry: entry[0].decision.name)
        return {name: ticked for entry in by_name for name, ticked in (await _apply_alone(tx, entry)).items()}


async def _apply_alone(tx: PostgresTransaction, entry: Entry) -> dict[str, Ticked]:
    try:
        async with tx.whole():
            return await _apply(tx, [entry])
    except FAULTS as error:
        move, ticket_for = entry
        logger.error("a tick of schedule %s cannot be kept: %s", move.decision.name, error)
        # Left as it is, the schedule would be decided again at once, and again.
        return await _apply_alone(tx, (without_jobs(move, str(refused(error))), ticket_for)) if move.jobs else {}


async def _apply(tx: PostgresTransaction, entries: Sequence[Entry]) -> dict[str, Ticked]:
    """Those whose schedule is still as it was read."""
    names = {name for (name,) in await query(tx.connection, _TICK, _decided([move for move, _ in entries]))}
    advanced = [entry for entry in entries if entry[0].decision.name in names]
    recorded = await _record(tx, [move for move, _ in advanced])
    inserted = await _insert(tx, advanced, recorded)
    return {move.decision.name: await _complete(tx, move, inserted) for move, _ in advanced}


def _decided(moves: Sequence[TickMove]) -> dict[str, object]:
    decisions = [move.decision for move in moves]
    return {
        "names": texts([one.name for one in decisions]),
        "versions": bigints([one.version for one in decisions]),
        "expected_ticks": bigints([optional_millis(one.expected_tick_at) for one in decisions]),
        "expected_pending": bigints([optional_millis(one.expected_pending_at) for one in decisions]),
        "next_ticks": bigints([optional_millis(one.next_tick_at) for one in decisions]),
        "pending_ticks": bigints([optional_millis(one.pending_tick_at) for one in decisions]),
        "last_ticks": bigints([max((to_millis(record.at) for record in move.records), default=None) for move in moves]),
        "by_hand": booleans([one.by_hand for one in decisions]),
    }


async def _record(tx: PostgresTransaction, moves: Sequence[TickMove]) -> set[JobId]:
    """The jobs of ticks that had none until now."""
    records = list(_records(moves))
    if not records:
        return set()
    schedules, instants, jobs, skips = zip(*records, strict=True)
    scope = {
        "schedules": texts(schedules),
        "ticks": bigints(instants),
        "jobs": optional_uuids(jobs),
        "skips": texts(skips),
    }
    return {job for (job,) in await query(tx.connection, _RECORD_TICKS, scope) if job is not None}


def _records(moves: Sequence[TickMove]) -> Iterator[Row]:
    for move in moves:
        for record in move.records:
            yield move.decision.name, to_millis(record.at), record.job, record.skipped


async def _insert(tx: PostgresTransaction, entries: Sequence[Entry], recorded: set[JobId]) -> dict[JobId, Submission]:
    """Only jobs whose tick was recorded just now: a tick that has its job gets no other."""
    jobs = [(new, span) for move, span in entries for new in move.jobs if new.id in recorded]
    answers = await insert(tx, jobs, Move.TICK) if jobs else []
    for answer in answers:
        if isinstance(answer, Misplaced):
            raise answer.refusal
    return {answer.job.id: answer for answer in answers if answer.event}


async def _complete(tx: PostgresTransaction, move: TickMove, inserted: Mapping[JobId, Submission]) -> Ticked:
    answers = [inserted[new.id] for new in move.jobs if new.id in inserted]
    events = [answer.event for answer in answers if answer.event]
    yielded = await yield_jobs(tx, move.decision.name, move.ousted) if move.ousted else []
    return Ticked(True, [answer.job for answer in answers], events, yielded)
