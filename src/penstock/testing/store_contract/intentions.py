"""Short ways to a schedule and to the moves of its ticks."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.model.job import Lease, NewJob
from penstock.model.schedule import Decision, Every, Schedule, Ticked, TickMove, TickRecord
from penstock.store.seam import schedule_key
from penstock.testing.store_contract.stage import MINUTE, TICKET, StoreStage


def schedule(stage: StoreStage, name: str = "nightly", **fields: Any) -> Schedule:
    """Every minute, the next tick now, unless told otherwise."""
    now = stage.clock.now()
    for field, value in {"when": Every(MINUTE), "type": "mail", "next_tick_at": now}.items():
        fields.setdefault(field, value)
    return Schedule(name=name, created_at=now, updated_at=now, **fields)


async def put(stage: StoreStage, name: str = "nightly", **fields: Any) -> Schedule:
    """A new schedule, kept."""
    stored = await stage.store.put_schedule(schedule(stage, name, **fields), None)
    assert stored is not None, f"there is a schedule {name}"
    return stored


async def find(stage: StoreStage, name: str = "nightly") -> Schedule:
    (stored,) = await stage.store.get_schedules([name])
    assert stored is not None, f"schedule {name} is gone"
    return stored


def job_of(stage: StoreStage, read: Schedule, at: datetime | None = None, **fields: Any) -> NewJob:
    """The job of a tick, at its schedule's place; of the schedule's next tick unless told otherwise."""
    fields.setdefault("id", stage.new_id(schedule_key(read.name)))
    return stage.new(type=read.type, schedule=read.name, tick_at=at or read.next_tick_at, **fields)


def move_of(
    read: Schedule, jobs: Sequence[NewJob] = (), skips: Mapping[datetime, str] | None = None, **decided: Any
) -> TickMove:
    """What a scheduler asks for after a reading: these jobs, these skips; the next tick a minute later."""
    records = [TickRecord(job.tick_at, job=job.id) for job in jobs if job.tick_at is not None]
    records += [TickRecord(at, skipped=reason) for at, reason in (skips or {}).items()]
    if "next_tick_at" not in decided:
        decided["next_tick_at"] = None if read.next_tick_at is None else read.next_tick_at + MINUTE
    decision = Decision(
        name=read.name,
        version=read.version,
        expected_tick_at=read.next_tick_at,
        expected_pending_at=read.pending_tick_at,
        **decided,
    )
    return TickMove(decision=decision, records=tuple(records), jobs=tuple(jobs))


async def apply(stage: StoreStage, *moves: TickMove) -> list[Ticked]:
    return await stage.store.tick(moves, TICKET)


async def tick(stage: StoreStage, read: Schedule, **decided: Any) -> NewJob:
    """The job of a schedule's next tick, inserted."""
    job = job_of(stage, read)
    (answer,) = await apply(stage, move_of(read, [job], **decided))
    assert answer.applied, f"a tick of {read.name} was refused"
    return job


async def finish(stage: StoreStage, job: NewJob) -> None:
    """Claim a queued job and settle it."""
    (claim,) = await stage.claim(job.id)
    await stage.settle(Lease(claim.job, claim.fence))
