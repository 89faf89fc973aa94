"""The tick move: one job or one recorded skip for each tick; never two, never early, never half."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from penstock.model.job import JobFilter
from penstock.model.lifecycle import Move, State
from penstock.model.schedule import TickMove, TickRecord, Verdict
from penstock.testing.store_contract.schedules import apply, find, job_of, move_of, put, tick
from penstock.testing.store_contract.stage import KEEP, MINUTE, SECOND, TICKET, OnStage, StoreStage

VERDICTS_TRIED = 100
"""Where a move may hold any number of verdicts."""


class TickContract(OnStage):
    async def test_a_tick_inserts_its_job_keeps_its_record_and_advances(self, stage: StoreStage) -> None:
        read, now = await put(stage), stage.clock.now()
        job = job_of(stage, read, queue="slow", tags=("red",), interval=MINUTE)
        (answer,) = await apply(stage, move_of(read, [job]))
        assert answer.applied
        kept = await stage.job(job.id)
        assert list(answer.jobs) == [kept]
        assert (kept.state, kept.schedule, kept.tick_at, kept.interval) == (State.QUEUED, "nightly", now, MINUTE)
        assert await stage.store.ticks("nightly", None, 9) == [TickRecord(now, job=job.id)]
        assert await find(stage) == replace(read, next_tick_at=now + MINUTE, last_tick_at=now)
        assert await stage.all_jobs(JobFilter(tag="red")) == [kept]
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_the_event_tells_of_the_tick(self, stage: StoreStage) -> None:
        read = await put(stage)
        (answer,) = await apply(stage, move_of(read, [job := job_of(stage, read)]))
        (event,) = answer.events
        assert (event.job, event.type, event.queue, event.at) == (job.id, "mail", "mail", stage.clock.now())
        assert (event.move, event.before, event.after) == (Move.TICK, None, State.QUEUED)

    async def test_a_ticketed_job_gets_no_second_ticket(self, stage: StoreStage) -> None:
        read = await put(stage)
        now = stage.clock.now()
        plain, ticketed = job_of(stage, read, now - SECOND), job_of(stage, read, ticketed=True)
        later = job_of(stage, read, now - SECOND * 2, ticketed=True, due_at=now + SECOND)
        await apply(stage, move_of(read, [plain, ticketed, later]))
        assert [ticket.job for ticket in await stage.dispatch({"mail": 9})] == [plain.id]
        assert (await stage.job(later.id)).state is State.SCHEDULED

    async def test_a_tick_may_become_a_skip(self, stage: StoreStage) -> None:
        read, now = await put(stage), stage.clock.now()
        (answer,) = await apply(stage, move_of(read, skips={now: "overlap: 1 job is active"}))
        assert (answer.applied, list(answer.jobs), list(answer.events)) == (True, [], [])
        assert await stage.store.ticks("nightly", None, 9) == [TickRecord(now, skipped="overlap: 1 job is active")]
        assert (await find(stage)).last_tick_at == now

    async def test_a_tick_whose_job_cannot_be_kept_is_skipped_with_the_reason(self, stage: StoreStage) -> None:
        reads = [await put(stage, name) for name in ("a", "b", "c")]
        moves = [move_of(read, [job_of(stage, read, priority=99 if read.name == "b" else 5)]) for read in reads]
        answers = await apply(stage, *moves)
        assert [(answer.applied, len(answer.jobs)) for answer in answers] == [(True, 1), (True, 0), (True, 1)]
        (record,) = await stage.store.ticks("b", None, 9)
        assert (record.at, record.job) == (reads[1].next_tick_at, None)
        assert "the store cannot keep this" in (record.skipped or "")
        assert (await find(stage, "b")).next_tick_at == moves[1].decision.next_tick_at
        assert {job.schedule for job in await stage.all_jobs()} == {"a", "c"}
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_jobs_that_must_yield_are_cancelled_with_the_tick_and_only_the_schedules_own(
        self, stage: StoreStage
    ) -> None:
        read = await put(stage)
        waiting = await tick(stage, read)
        stage.clock.advance(MINUTE)
        running = await tick(stage, await find(stage))
        await stage.claim(running.id)
        foreign = await stage.submit()
        stage.clock.advance(MINUTE)
        read = await find(stage)
        job = job_of(stage, read)
        (answer,) = await apply(stage, move_of(read, [job], cancel=(waiting.id, running.id, foreign.id, job.id)))
        assert {event.job: event.after for event in answer.yielded} == {
            waiting.id: State.CANCELLED,
            running.id: State.RUNNING,
        }
        states = [(await stage.job(one)).state for one in (waiting.id, running.id, foreign.id, job.id)]
        assert states == [State.CANCELLED, State.RUNNING, State.QUEUED, State.QUEUED]
        assert (await stage.job(running.id)).cancel_requested_at == stage.clock.now()
        counts = {(one.type, one.state): one.jobs for one in await stage.store.counts() if one.jobs}
        assert counts == {("mail", State.CANCELLED): 1, ("mail", State.RUNNING): 1, ("mail", State.QUEUED): 2}

    async def test_nothing_yields_to_a_tick_that_has_no_job_or_is_refused(self, stage: StoreStage) -> None:
        read = await put(stage)
        before = await tick(stage, read)
        stage.clock.advance(MINUTE)
        stale = move_of(read, [job_of(stage, read)], cancel=(before.id,))
        read = await find(stage)
        skipped = move_of(read, skips={stage.clock.now(): "no such type"}, cancel=(before.id,))
        answers = [(await apply(stage, move))[0] for move in (stale, skipped)]
        assert [(answer.applied, len(answer.yielded)) for answer in answers] == [(False, 0), (True, 0)]
        assert (await stage.job(before.id)).state is State.QUEUED

    async def test_of_two_ticks_from_the_same_reading_one_is_applied(self, stage: StoreStage) -> None:
        read = await put(stage)
        moves = [move_of(read, [job_of(stage, read)]) for _ in range(6)]
        batches = await asyncio.gather(apply(stage, *moves[:2]), *(apply(stage, move) for move in moves[2:]))
        answers = [answer for batch in batches for answer in batch]
        assert sum(answer.applied for answer in answers) == 1
        (job,) = await stage.all_jobs()
        assert [list(answer.jobs) for answer in answers if answer.applied] == [[job]]
        assert [record.job for record in await stage.store.ticks("nightly", None, 9)] == [job.id]

    async def test_moves_of_one_batch_may_follow_each_other(self, stage: StoreStage) -> None:
        read = await put(stage, next_tick_at=stage.clock.now() - MINUTE)
        then = replace(read, next_tick_at=stage.clock.now())
        answers = await apply(stage, move_of(read, [job_of(stage, read)]), move_of(then, [job_of(stage, then)]))
        assert [answer.applied for answer in answers] == [True, True]
        assert (await find(stage)).next_tick_at == stage.clock.now() + MINUTE

    @pytest.mark.parametrize("stale", ["name", "version", "next", "no next", "pending", "no pending"])
    async def test_a_plan_for_another_state_of_the_schedule_is_refused(self, stage: StoreStage, stale: str) -> None:
        now = stage.clock.now()
        read = await put(stage, pending_tick_at=now - MINUTE)
        other = {
            "name": replace(read, name="other"),
            "version": replace(read, version=2),
            "next": replace(read, next_tick_at=now - SECOND),
            "no next": replace(read, next_tick_at=None),
            "pending": replace(read, pending_tick_at=now - SECOND),
            "no pending": replace(read, pending_tick_at=None),
        }[stale]
        await is_refused(stage, move_of(other, [job_of(stage, read)], next_tick_at=now + MINUTE))
        assert await find(stage) == read

    async def test_a_plan_made_before_a_replacement_is_refused(self, stage: StoreStage) -> None:
        read = await put(stage)
        await stage.store.put_schedule(replace(read, type="scan"), read.version)
        await is_refused(stage, move_of(read, [job_of(stage, read)]))

    async def test_a_paused_schedule_does_not_tick(self, stage: StoreStage) -> None:
        read = await put(stage, paused=True)
        await is_refused(stage, move_of(read, [job_of(stage, read)]))
        assert await find(stage) == read

    async def test_somebody_who_asks_by_hand_gets_a_tick_of_a_paused_schedule(self, stage: StoreStage) -> None:
        read = await put(stage, paused=True)
        move = move_of(read, [job_of(stage, read)], next_tick_at=read.next_tick_at, by_hand=True)
        (answer,) = await apply(stage, move)
        assert (answer.applied, len(answer.jobs)) == (True, 1)
        assert (await find(stage)).paused

    async def test_a_dropped_schedule_does_not_tick(self, stage: StoreStage) -> None:
        read = await put(stage)
        await stage.store.drop_schedule("nightly")
        await is_refused(stage, move_of(read, [job_of(stage, read)]))

    @pytest.mark.parametrize("early", ["job", "skip", "verdict"])
    async def test_no_tick_is_early_by_the_shards_clock(self, stage: StoreStage, early: str) -> None:
        at = stage.clock.now() + SECOND
        read = await put(stage, next_tick_at=at)
        move = {
            "job": move_of(read, [job_of(stage, read)]),
            "skip": move_of(read, skips={at: "misfire"}),
            "verdict": move_of(read, verdicts=(Verdict(at),)),
        }[early]
        stage.clock.advance(SECOND - timedelta(milliseconds=1))
        await is_refused(stage, move)
        assert await find(stage) == read
        stage.clock.advance(timedelta(milliseconds=1))
        assert [answer.applied for answer in await apply(stage, move)] == [True]

    async def test_the_job_of_a_tick_is_never_inserted_twice(self, stage: StoreStage) -> None:
        read = await put(stage)
        job = job_of(stage, read)
        await stage.store.submit([job], TICKET)
        (answer,) = await apply(stage, move_of(read, [job]))
        assert (answer.applied, list(answer.jobs), list(answer.events)) == (True, [], [])
        assert [record.job for record in await stage.store.ticks("nightly", None, 9)] == [job.id]
        assert len(await stage.all_jobs()) == 1
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_a_tick_that_was_decided_is_not_decided_again(self, stage: StoreStage) -> None:
        """A replacement may put the next tick back to one that has its job; the schedule must still get past it."""
        read = await put(stage)
        job = await tick(stage, read)
        again = await stage.store.put_schedule(read, read.version)
        assert again is not None
        (answer,) = await apply(stage, move_of(again, [job_of(stage, again)]))
        assert (answer.applied, list(answer.jobs)) == (True, [])
        assert (await find(stage)).next_tick_at == stage.clock.now() + MINUTE
        last = await stage.store.put_schedule(read, again.version)
        assert last is not None
        await apply(stage, move_of(last, skips={stage.clock.now(): "misfire"}))
        assert await stage.store.ticks("nightly", None, 9) == [TickRecord(stage.clock.now(), job=job.id)]
        assert [one.id for one in await stage.all_jobs()] == [job.id]

    async def test_a_skipped_tick_may_be_made_up_for(self, stage: StoreStage) -> None:
        read, now = await put(stage), stage.clock.now()
        await apply(stage, move_of(read, skips={now: "misfire", now - SECOND: "misfire"}))
        read = await find(stage)
        job = job_of(stage, read, now - SECOND)
        (answer,) = await apply(stage, move_of(read, [job], next_tick_at=read.next_tick_at))
        assert [one.id for one in answer.jobs] == [job.id]
        records = [TickRecord(now, skipped="misfire"), TickRecord(now - SECOND, job=job.id)]
        assert await stage.store.ticks("nightly", None, 9) == records
        assert (await find(stage)).last_tick_at == now

    async def test_a_move_that_cannot_be_kept_leaves_nothing_and_hurts_no_other(self, stage: StoreStage) -> None:
        reads = [await put(stage, name) for name in ("a", "b", "c")]
        moves = [move_of(read, [job_of(stage, read)]) for read in reads]
        neither = TickRecord(stage.clock.now() - SECOND)
        moves[1] = replace(moves[1], records=(*moves[1].records, neither))
        assert [answer.applied for answer in await apply(stage, *moves)] == [True, False, True]
        assert await find(stage, "b") == reads[1]
        assert await stage.store.ticks("b", None, 9) == []
        assert {job.schedule for job in await stage.all_jobs()} == {"a", "c"}
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_a_pending_tick_is_kept_and_taken_up(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        await apply(stage, move_of(await put(stage), pending_tick_at=now))
        read = await find(stage)
        assert (read.pending_tick_at, read.next_tick_at, read.last_tick_at) == (now, now + MINUTE, None)
        job = job_of(stage, read, now)
        answers = [await apply(stage, move_of(read, [job], next_tick_at=read.next_tick_at)) for _ in range(2)]
        assert [answer.applied for (answer,) in answers] == [True, False]
        after = await find(stage)
        assert (after.pending_tick_at, after.next_tick_at, after.last_tick_at) == (None, now + MINUTE, now)

    async def test_a_large_batch_is_answered_in_order(self, stage: StoreStage) -> None:
        reads = [await put(stage, f"s{number}") for number in range(70)]
        moves = [move_of(read, [job_of(stage, read)]) for read in reads]
        await apply(stage, *moves[::3])
        answers = await apply(stage, *moves)
        assert [answer.applied for answer in answers] == [number % 3 > 0 for number in range(70)]
        applied = [move for number, move in enumerate(moves) if number % 3]
        assert [job.id for answer in answers for job in answer.jobs] == [move.jobs[0].id for move in applied]
        assert await stage.read_counts() == await stage.count_jobs()
        assert await apply(stage) == []

    async def test_one_move_holds_as_many_verdicts_as_the_store_declares(self, stage: StoreStage) -> None:
        read, now = await put(stage), stage.clock.now()
        most = stage.store.capabilities.tick_verdicts or VERDICTS_TRIED
        jobs = [job_of(stage, read, now - SECOND * ago) for ago in reversed(range(most))]
        (answer,) = await apply(stage, move_of(read, jobs))
        assert (answer.applied, len(answer.jobs)) == (True, most)
        assert len(await stage.store.ticks("nightly", None, most + 1)) == most

    async def test_the_history_is_newest_first_and_read_in_pages(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        instants = [now - SECOND * ago for ago in range(7)]
        await apply(stage, move_of(await put(stage), skips=dict.fromkeys(reversed(instants), "misfire")))
        await tick(stage, await put(stage, "other"))
        first = await stage.store.ticks("nightly", None, 3)
        rest = await stage.store.ticks("nightly", first[-1].at, 9)
        assert [record.at for record in first] == instants[:3]
        assert [record.at for record in rest] == instants[3:]
        assert await stage.store.ticks("nightly", instants[-1], 9) == []
        assert await stage.store.ticks("none", None, 9) == []

    async def test_the_history_is_kept_as_long_as_failed_jobs(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        await apply(stage, move_of(await put(stage), skips={now - SECOND: "misfire", now: "misfire"}))
        stage.clock.advance(KEEP.failed - SECOND)
        await stage.prune()
        assert [record.at for record in await stage.store.ticks("nightly", None, 9)] == [now]
        stage.clock.advance(SECOND)
        await stage.prune()
        assert await stage.store.ticks("nightly", None, 9) == []


async def is_refused(stage: StoreStage, move: TickMove) -> None:
    """Nothing of the move is stored."""
    jobs, records = await stage.all_jobs(), await stage.store.ticks(move.decision.name, None, 99)
    (answer,) = await apply(stage, move)
    assert (answer.applied, list(answer.jobs), list(answer.events)) == (False, [], [])
    assert await stage.all_jobs() == jobs
    assert await stage.store.ticks(move.decision.name, None, 99) == records
