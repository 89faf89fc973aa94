"""Schedules: kept under their version, listed by name, due when they have something to decide."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.model.errors import Invalid
from penstock.model.job import Lease, NewJob
from penstock.model.retry import Retry
from penstock.model.schedule import Cron, Decision, Every, Misfire, Overlap, Schedule, Ticked, TickMove, TickRecord
from penstock.store.seam import schedule_key
from penstock.testing.store_contract.stage import KEEP, MINUTE, SECOND, TICKET, OnStage, StoreStage


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


AFTER_COMPLETION = Every(MINUTE, after_completion=True)


async def due_names(stage: StoreStage, in_: timedelta = SECOND, limit: int = 99) -> list[str]:
    return [due.schedule.name for due in await stage.store.due_schedules(stage.clock.now() + in_, limit)]


class ScheduleContract(OnStage):
    async def test_everything_intended_is_kept(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        wanted = schedule(
            stage,
            when=Cron("0 2 * * *", "Europe/Berlin"),
            params=b'{"to":"x"}',
            queue="slow",
            priority=7,
            retry=Retry.fixed(2, max_attempts=9),
            timeout=timedelta(seconds=1.5),
            tags=("red", "blue"),
            start_at=now - MINUTE,
            end_at=now + MINUTE * 9,
            jitter=SECOND,
            misfire=Misfire.RUN_ALL,
            misfire_cap=7,
            misfire_grace=SECOND * 5,
            overlap=Overlap.QUEUE_ONE,
            paused=True,
            pending_tick_at=now - SECOND,
            last_tick_at=now - MINUTE,
        )
        assert await stage.store.put_schedule(wanted, None) == wanted
        assert await find(stage) == wanted

    @pytest.mark.parametrize("field", ["next_tick_at", "end_at"])
    async def test_an_instant_out_of_range_is_refused_and_its_schedule_with_it(
        self, stage: StoreStage, field: str
    ) -> None:
        with pytest.raises(Invalid):
            await stage.store.put_schedule(replace(schedule(stage), **{field: datetime(3000, 1, 1, tzinfo=UTC)}), None)
        assert await stage.store.schedules(None, 9) == []

    async def test_a_name_is_created_once(self, stage: StoreStage) -> None:
        first = await put(stage)
        calls = [stage.store.put_schedule(schedule(stage, type="scan"), None) for _ in range(5)]
        assert await asyncio.gather(*calls) == [None] * 5
        assert await find(stage) == first

    async def test_a_replacement_takes_the_next_version(self, stage: StoreStage) -> None:
        first = await put(stage)
        changed = replace(first, type="scan", paused=True, next_tick_at=None)
        second = await stage.store.put_schedule(changed, 1)
        assert second == replace(changed, version=2)
        assert await find(stage) == second

    async def test_a_replacement_of_another_version_changes_nothing(self, stage: StoreStage) -> None:
        first = await put(stage)
        second = await stage.store.put_schedule(first, 1)
        for expected in (1, 3):
            assert await stage.store.put_schedule(replace(first, type="scan"), expected) is None
        assert await stage.store.put_schedule(schedule(stage, "other"), 1) is None
        assert await stage.store.get_schedules(["nightly", "other"]) == [second, None]

    async def test_of_concurrent_replacements_one_wins(self, stage: StoreStage) -> None:
        first = await put(stage)
        calls = [stage.store.put_schedule(replace(first, type=f"t{number}"), 1) for number in range(9)]
        winners = [one for one in await asyncio.gather(*calls) if one is not None]
        assert winners == [await find(stage)]

    async def test_a_replacement_does_not_forget_the_last_tick(self, stage: StoreStage) -> None:
        before = await put(stage)
        await tick(stage, before)
        await stage.store.put_schedule(before, before.version)
        assert (await find(stage)).last_tick_at == stage.clock.now()

    async def test_schedules_are_answered_in_order(self, stage: StoreStage) -> None:
        first, second = await put(stage, "a"), await put(stage, "b")
        assert await stage.store.get_schedules(["b", "none", "a", "b"]) == [second, None, first, second]
        assert await stage.store.get_schedules([]) == []

    async def test_schedules_are_listed_by_name(self, stage: StoreStage) -> None:
        for name in ("d", "b", "a", "c"):
            await put(stage, name, paused=name == "c")
        assert [one.name for one in await stage.store.schedules(None, 3)] == ["a", "b", "c"]
        assert [one.name for one in await stage.store.schedules("c", 3)] == ["d"]
        assert await stage.store.schedules("d", 3) == []

    async def test_a_dropped_schedule_takes_its_history_and_leaves_its_jobs(self, stage: StoreStage) -> None:
        job = await tick(stage, await put(stage))
        other = await tick(stage, await put(stage, "other"))
        assert await stage.store.drop_schedule("nightly")
        assert not await stage.store.drop_schedule("nightly")
        assert await stage.store.get_schedules(["nightly"]) == [None]
        assert await stage.store.ticks("nightly", None, 9) == []
        assert [one.job for one in await stage.store.ticks("other", None, 9)] == [other.id]
        assert (await stage.job(job.id)).schedule == "nightly"

    async def test_what_ticks_soonest_is_due_first(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        for name, wait in {"late": 2, "soon": 1, "now": 0, "past": -60, "far": 5}.items():
            await put(stage, name, next_tick_at=now + SECOND * wait)
        await put(stage, "paused", paused=True)
        await put(stage, "over", next_tick_at=None)
        assert await due_names(stage, SECOND * 5) == ["past", "now", "soon", "late"]
        assert await due_names(stage, SECOND * 5, limit=2) == ["past", "now"]
        assert await due_names(stage, SECOND * 5 + timedelta(microseconds=1)) == ["past", "now", "soon", "late", "far"]

    async def test_a_due_schedule_comes_with_its_jobs_that_have_not_ended(self, stage: StoreStage) -> None:
        read = await put(stage)
        await put(stage, "other")
        ended, first, second = [job_of(stage, read, stage.clock.now() - SECOND * ago) for ago in (3, 2, 1)]
        await apply(stage, move_of(read, [ended, first, second], next_tick_at=read.next_tick_at))
        stage.clock.advance(SECOND)
        await finish(stage, ended)
        await stage.claim(second.id)
        mine, other = sorted(await stage.store.due_schedules(stage.clock.now(), 9), key=lambda due: due.schedule.name)
        assert (mine.schedule, mine.active) == (await find(stage), (first.id, second.id))
        assert mine.completed_at == stage.clock.now()
        assert (other.active, other.completed_at) == ((), None)

    async def test_a_pending_tick_is_due_once_its_predecessors_have_ended(self, stage: StoreStage) -> None:
        job = await tick(stage, await put(stage), pending_tick_at=stage.clock.now() + SECOND)
        assert await due_names(stage) == []
        await finish(stage, job)
        assert await due_names(stage) == ["nightly"]
        await stage.store.put_schedule(replace(await find(stage), paused=True), 1)
        assert await due_names(stage) == []

    async def test_a_schedule_with_two_reasons_is_due_once(self, stage: StoreStage) -> None:
        await put(stage, pending_tick_at=stage.clock.now() - SECOND)
        assert await due_names(stage) == ["nightly"]

    async def test_a_completion_is_what_a_fixed_delay_counts_from(self, stage: StoreStage) -> None:
        job = await tick(stage, await put(stage, when=AFTER_COMPLETION), next_tick_at=None)
        stage.clock.advance(MINUTE)
        assert await due_names(stage) == []
        await finish(stage, job)
        (due,) = await stage.store.due_schedules(stage.clock.now(), 9)
        assert (due.completed_at, due.active) == (stage.clock.now(), ())
        (answer,) = await apply(stage, move_of(due.schedule, next_tick_at=stage.clock.now() + MINUTE))
        assert answer.applied
        assert await due_names(stage) == []

    async def test_a_fixed_rate_without_a_next_tick_waits_for_no_completion(self, stage: StoreStage) -> None:
        await finish(stage, await tick(stage, await put(stage), next_tick_at=None))
        assert await due_names(stage) == []

    async def test_a_fixed_delay_past_its_end_or_paused_is_not_due(self, stage: StoreStage) -> None:
        for name in ("ends", "paused"):
            read = await put(stage, name, when=AFTER_COMPLETION, end_at=stage.clock.now() + MINUTE)
            await finish(stage, await tick(stage, read, next_tick_at=None))
        await stage.store.put_schedule(replace(await find(stage, "paused"), paused=True), 1)
        assert await due_names(stage) == ["ends"]
        stage.clock.advance(MINUTE)
        assert await due_names(stage) == []

    async def test_no_fixed_delay_is_silent_when_its_job_is_pruned_or_the_clock_is_set_back(
        self, stage: StoreStage
    ) -> None:
        start = stage.clock.now()
        pruned = await tick(stage, await put(stage, "pruned", when=AFTER_COMPLETION), next_tick_at=None)
        await finish(stage, pruned)
        stage.clock.advance(KEEP.succeeded)
        await stage.prune()
        later = stage.clock.now()
        early = await tick(stage, await put(stage, "set back", when=AFTER_COMPLETION), next_tick_at=None)
        stage.clock.set(later - MINUTE)
        await finish(stage, early)
        dues = await stage.store.due_schedules(later, 9)
        assert {due.schedule.name: due.completed_at for due in dues} == {"pruned": start, "set back": later}

    async def test_a_fixed_delay_that_has_never_ticked_is_due(self, stage: StoreStage) -> None:
        await put(stage, when=AFTER_COMPLETION, next_tick_at=None)
        (due,) = await stage.store.due_schedules(stage.clock.now(), 9)
        assert (due.active, due.completed_at) == ((), None)

    async def test_the_next_tick_is_the_earliest_of_those_not_paused(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        assert await stage.store.next_tick() is None
        await put(stage, "paused", paused=True)
        await put(stage, "over", next_tick_at=None)
        assert await stage.store.next_tick() is None
        await put(stage, "late", next_tick_at=now + MINUTE)
        await put(stage, "soon", next_tick_at=now + SECOND)
        assert await stage.store.next_tick() == now + SECOND
