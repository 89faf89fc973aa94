"""Schedules and ticks in DynamoDB: races of many processes, lost answers, and more jobs than an item can list."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId
from penstock.model.lifecycle import State
from penstock.model.schedule import TickMove, TickRecord
from penstock.store.dynamodb import schedule_items
from penstock.store.dynamodb.schema import PLACE
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.schedules import (
    AFTER_COMPLETION,
    apply,
    due_names,
    find,
    finish,
    job_of,
    move_of,
    put,
    tick,
)
from penstock.testing.store_contract.stage import MINUTE, SECOND, StoreStage
from tests.dynamodb import Processes
from tests.dynamodb_faults import Faults, LateIndex, SentTwice, table_of

CALLERS = 8


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def processes(clock: SimulatedClock) -> AsyncIterator[Processes]:
    async with AsyncExitStack() as opened:
        yield Processes(clock, opened)


async def test_of_many_processes_that_decide_the_same_tick_one_makes_its_job(processes: Processes) -> None:
    stages = [await processes.stage() for _ in range(CALLERS)]
    read = await put(stages[0])
    for _ in range(4):
        moves = [move_of(read, [job_of(stage, read)]) for stage in stages]
        answers = await asyncio.gather(*(apply(stage, move) for stage, move in zip(stages, moves, strict=True)))
        assert sum(answer.applied for (answer,) in answers) == 1
        processes.clock.advance(MINUTE)
        read = await find(stages[0])
    jobs = {job.id for job in await stages[0].all_jobs()}
    assert {record.job for record in await stages[0].store.ticks("nightly", None, 9)} == jobs
    assert len(jobs) == 4


async def test_ticks_by_hand_at_the_same_time_forget_no_job(processes: Processes) -> None:
    """All of them pass the same version and next tick; each must add its job to those of the others."""
    stages = [await processes.stage() for _ in range(CALLERS)]
    read, now = await put(stages[0]), processes.clock.now()
    moves = [
        move_of(read, [job_of(stage, read, now - SECOND * n)], next_tick_at=read.next_tick_at, by_hand=True)
        for n, stage in enumerate(stages, 1)
    ]
    answers = await asyncio.gather(*(apply(stage, move) for stage, move in zip(stages, moves, strict=True)))
    assert all(answer.applied for (answer,) in answers)
    (due,) = await stages[0].store.due_schedules(now + SECOND, 9)
    assert set(due.active) == {move.jobs[0].id for move in moves}
    assert due.schedule.last_tick_at == now - SECOND


async def test_a_tick_that_another_has_overtaken_is_decided_anew(processes: Processes) -> None:
    slow, fast = await processes.stage(), await processes.stage()
    read, now = await put(fast), processes.clock.now()
    first, second = (
        move_of(read, [job_of(stage, read, now - SECOND * n)], next_tick_at=read.next_tick_at, by_hand=True)
        for n, stage in ((1, fast), (2, slow))
    )

    async def overtake() -> None:
        assert (await apply(fast, first))[0].applied

    with Faults(slow.store).before(1, overtake):
        assert (await apply(slow, second))[0].applied
    assert set(await _activity(fast)) == {first.jobs[0].id, second.jobs[0].id}


async def test_ticks_by_hand_of_one_instant_make_one_job(processes: Processes) -> None:
    stages = [await processes.stage() for _ in range(CALLERS)]
    read = await put(stages[0])
    moves = [move_of(read, [job_of(stage, read)], next_tick_at=read.next_tick_at, by_hand=True) for stage in stages]
    answers = await asyncio.gather(*(apply(stage, move) for stage, move in zip(stages, moves, strict=True)))
    assert sum(len(answer.jobs) for (answer,) in answers) == 1
    assert len(await stages[0].all_jobs()) == 1


async def test_a_tick_and_a_replacement_at_the_same_time_are_one_after_the_other(processes: Processes) -> None:
    first, second = await processes.stage(), await processes.stage()
    for number in range(6):
        read = await put(first, f"s{number}")
        changed, (answer,) = await asyncio.gather(
            second.store.put_schedule(replace(read, type="scan"), read.version),
            apply(first, move_of(read, [job_of(first, read)])),
        )
        stored = await find(first, f"s{number}")
        assert changed is not None
        assert (stored.version, stored.type) == (2, "scan")
        assert stored.last_tick_at == (read.next_tick_at if answer.applied else None)


async def test_a_job_that_moves_while_it_yields_is_cancelled_as_it_is_then(processes: Processes) -> None:
    stage, workers = await processes.stage(), await processes.stage()
    old = await tick(stage, await put(stage))
    stage.clock.advance(MINUTE)
    read = await find(stage)

    leases = []

    async def claim_it() -> None:
        leases.append(await workers.claim_again(old.id))

    with Faults(stage.store).before(1, claim_it):
        (answer,) = await apply(stage, move_of(read, [job_of(stage, read)], cancel=(old.id,)))
    assert [(event.job, event.after) for event in answer.yielded] == [(old.id, State.RUNNING)]
    assert (await stage.job(old.id)).cancel_requested_at == stage.clock.now()
    (renewal,) = await workers.store.renew("w1", leases, MINUTE)
    assert renewal.cancel, "its worker learns of it with the next beat"


async def test_a_tick_whose_answer_is_lost_is_applied_once(processes: Processes) -> None:
    stage = await processes.stage()
    read = await put(stage)
    with SentTwice(stage.store):
        (answer,) = await apply(stage, move_of(read, [job_of(stage, read)]))
    assert (answer.applied, len(answer.jobs)) == (True, 1)
    stage.clock.advance(MINUTE)
    read = await find(stage)
    move = move_of(read, [job_of(stage, read)])
    with Faults(stage.store).lose_answers(1), pytest.raises(StoreUnavailable):
        await apply(stage, move)
    (again,) = await apply(stage, move)
    assert not again.applied
    assert len(await stage.all_jobs()) == 2


async def test_a_schedule_is_created_and_replaced_once_when_answers_are_lost(processes: Processes) -> None:
    stage = await processes.stage()
    with SentTwice(stage.store):
        first = await put(stage)
        second = await stage.store.put_schedule(replace(first, type="scan"), 1)
    assert second == await find(stage)
    assert second == replace(first, type="scan", version=2)


async def test_an_index_that_is_late_makes_no_tick_early_or_twice(processes: Processes) -> None:
    stage = await processes.stage()
    index = LateIndex(stage.store, PLACE)
    read = await put(stage)
    await index.freeze("000#tick")
    await tick(stage, read)
    await put(stage, "new")
    assert await due_names(stage) == [], "what the index shows is decided already, and what is new it does not show"
    index.let_go()
    assert await due_names(stage) == ["new"]


async def test_more_active_jobs_than_an_item_lists_are_all_known(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_items, "LISTED_MAX", 3)
    stage = await processes.stage()
    read = await put(stage)
    jobs = []
    for _ in range(7):
        jobs.append(await tick(stage, await find(stage, read.name)))
        stage.clock.advance(MINUTE)
    assert await _activity(stage) == tuple(job.id for job in jobs)
    for job in jobs[:5]:
        await finish(stage, job)
    jobs.append(await tick(stage, await find(stage)))
    stage.clock.advance(SECOND)
    assert await _activity(stage) == tuple(job.id for job in jobs[5:])
    (item,) = (await table_of(stage.store).query("000#schedules")).items
    assert "ao" not in item, "the rest is few enough again"


async def test_jobs_for_which_a_transaction_has_no_room_yield_to_the_next_tick(processes: Processes) -> None:
    stage = await processes.stage()
    read, now = await put(stage), stage.clock.now()
    before = [job_of(stage, read, now - SECOND * ago) for ago in range(1, 46)]
    await apply(stage, move_of(read, before, next_tick_at=now))
    for number, job in enumerate(before):
        await stage.claim(job.id, worker=f"w{number}")
    stage.clock.advance(MINUTE)
    yielded = []
    for _ in range(2):
        read = await find(stage)
        jobs = [job_of(stage, read, at) for at in (read.next_tick_at, stage.clock.now())]
        move = move_of(read, jobs, cancel=tuple(job.id for job in before))
        skips = {stage.clock.now() - SECOND * ago: "misfire" for ago in range(1, 10)}
        (answer,) = await apply(stage, with_skips(move, skips))
        assert answer.applied
        yielded.append(len(answer.yielded))
        stage.clock.advance(MINUTE)
    assert yielded[0] < len(before) == sum(yielded)


async def test_a_decision_of_as_many_verdicts_as_are_allowed_is_one_transaction(processes: Processes) -> None:
    stage = await processes.stage()
    most = stage.store.capabilities.tick_verdicts
    assert most == 49
    read = await put(stage, when=AFTER_COMPLETION, next_tick_at=stage.clock.now())
    jobs = [job_of(stage, read, stage.clock.now() - SECOND * ago) for ago in range(most)]
    (answer,) = await apply(stage, move_of(read, jobs, next_tick_at=None))
    assert (answer.applied, len(answer.jobs)) == (True, most)


async def test_a_schedule_that_waits_again_is_not_forgotten_by_who_saw_that_it_did_not(processes: Processes) -> None:
    stage, other = await processes.stage(), await processes.stage()
    job = await tick(stage, await put(stage, when=AFTER_COMPLETION), next_tick_at=None)
    await stage.store.put_schedule(replace(await find(stage), paused=True), 1)

    async def resume() -> None:
        await other.store.put_schedule(replace(await find(other), paused=False), 2)

    with Faults(stage.store).before(1, resume):
        assert await due_names(stage) == []
    await finish(stage, job)
    assert await due_names(stage) == ["nightly"]


async def test_a_schedule_of_the_same_name_has_a_history_of_its_own(processes: Processes) -> None:
    stage = await processes.stage()
    read = await put(stage)
    await tick(stage, read)
    await stage.store.drop_schedule("nightly")
    again = await put(stage)
    assert await stage.store.ticks("nightly", None, 9) == []
    await tick(stage, again)
    assert len(await stage.store.ticks("nightly", None, 9)) == 1


def with_skips(move: TickMove, skips: dict[datetime, str]) -> TickMove:
    records = tuple(TickRecord(at, skipped=reason) for at, reason in skips.items())
    return replace(move, records=(*move.records, *records))


async def _activity(stage: StoreStage) -> tuple[JobId, ...]:
    (due,) = await stage.store.due_schedules(stage.clock.now() + timedelta(hours=1), 9)
    return due.active
