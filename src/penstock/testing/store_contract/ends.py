"""Cancel, expire, prune: ends that no worker wrote, and what is left afterwards."""

import asyncio
from datetime import timedelta

from penstock.model.job import FileLink, JobFilter, LogLine, Loss, ObjectLink
from penstock.model.lifecycle import Move, State
from penstock.testing.store_contract.stage import DAY, KEEP, MINUTE, SECOND, TICKET, OnStage, StoreStage

LINK = ObjectLink("objects/1", 9, "sha256:00", "text/plain")


class EndContract(OnStage):
    async def test_waiting_jobs_are_cancelled_at_once(self, stage: StoreStage) -> None:
        jobs = [await stage.submit(), await stage.submit(ticketed=True), await stage.submit(delay=MINUTE)]
        answers = await stage.store.cancel([job.id for job in jobs])
        assert [answer.job for answer in answers] == await stage.store.get([job.id for job in jobs])
        for job, answer in zip(jobs, answers, strict=True):
            assert answer.job is not None
            assert answer.event is not None
            assert (answer.job.state, answer.job.completed_at) == (State.CANCELLED, stage.clock.now())
            event = answer.event
            assert (event.move, event.before, event.after) == (Move.CANCEL, job.state, State.CANCELLED)

    async def test_no_attempt_starts_after_a_cancel(self, stage: StoreStage) -> None:
        job = await stage.submit(ticketed=True)
        await stage.store.cancel([job.id])
        assert await stage.claim(job.id) == []
        await stage.sweeps.expire_tickets(None)
        assert await stage.dispatch({"mail": 9}) == []

    async def test_a_race_of_claim_and_cancel_has_one_winner(self, stage: StoreStage) -> None:
        jobs = [answer.job.id for answer in await stage.store.submit([stage.new() for _ in range(20)], TICKET)]
        claiming = asyncio.ensure_future(stage.claim(*jobs))
        cancellations = await asyncio.gather(*(stage.store.cancel([job]) for job in jobs))
        started = {claim.job for claim in await claiming}
        for job, (answer,) in zip(jobs, cancellations, strict=True):
            assert answer.job is not None
            assert (answer.job.state is State.CANCELLED) == (job not in started)

    async def test_a_running_job_is_marked_once(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        (first,) = await stage.store.cancel([lease.job])
        assert first.job is not None
        assert first.event is not None
        assert (first.job.state, first.job.cancel_requested_at) == (State.RUNNING, stage.clock.now())
        assert (first.event.before, first.event.after, first.job.fence) == (State.RUNNING, State.RUNNING, 1)
        stage.clock.advance(SECOND)
        (again,) = await stage.store.cancel([lease.job])
        assert (again.job, again.event) == (first.job, None)

    async def test_force_ends_a_running_job_and_locks_its_owner_out(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.cancel([lease.job])
        (answer,) = await stage.store.cancel([lease.job], force=True)
        assert answer.job is not None
        assert answer.event is not None
        assert (answer.job.state, answer.job.fence) == (State.CANCELLED, lease.fence + 1)
        assert (await stage.settle(lease)).loss is Loss.LOST
        assert await stage.job(lease.job) == answer.job

    async def test_cancel_leaves_ended_and_unknown_jobs(self, stage: StoreStage) -> None:
        ended = await stage.end_job()
        before = await stage.job(ended)
        known, unknown = await stage.store.cancel([ended, stage.unknown()], force=True)
        assert (known.job, known.event) == (before, None)
        assert (unknown.job, unknown.event) == (None, None)

    async def test_a_job_cancelled_twice_in_one_call_changes_once(self, stage: StoreStage) -> None:
        job = await stage.submit()
        first, again = await stage.store.cancel([job.id, job.id])
        assert first.event is not None
        assert (again.job, again.event) == (first.job, None)

    async def test_waiting_jobs_expire_at_their_deadline(self, stage: StoreStage) -> None:
        deadline = stage.clock.now() + MINUTE
        queued = await stage.submit(expires_at=deadline, ticketed=True)
        later = await stage.submit(expires_at=deadline, delay=MINUTE * 2)
        running = await stage.run_job(expires_at=deadline)
        await stage.submit(expires_at=deadline + MINUTE)
        stage.clock.advance(MINUTE - SECOND)
        assert await stage.sweeps.expire(9) == []
        stage.clock.advance(SECOND)
        events = await stage.sweeps.expire(9)
        assert {(event.job, event.before, event.after, event.move) for event in events} == {
            (queued.id, State.QUEUED, State.EXPIRED, Move.EXPIRE),
            (later.id, State.SCHEDULED, State.EXPIRED, Move.EXPIRE),
        }
        job = await stage.job(queued.id)
        assert (job.state, job.completed_at) == (State.EXPIRED, stage.clock.now())
        assert (await stage.job(running.job)).state is State.RUNNING

    async def test_expire_keeps_to_its_limit(self, stage: StoreStage) -> None:
        for seconds in range(5):
            await stage.submit(expires_at=stage.clock.now() + SECOND * seconds)
        stage.clock.advance(MINUTE)
        assert [len(await stage.sweeps.expire(3)) for _ in range(3)] == [3, 2, 0]

    async def test_success_and_failure_are_kept_for_their_own_time(self, stage: StoreStage) -> None:
        succeeded, failed = await stage.end_job(), await stage.end_job(State.FAILED)
        cancelled = (await stage.submit()).id
        await stage.store.cancel([cancelled])
        expired = (await stage.submit(expires_at=stage.clock.now())).id
        await stage.sweeps.expire(9)
        waiting = (await stage.submit(delay=timedelta(days=9))).id
        stage.clock.advance(KEEP.succeeded - SECOND)
        await stage.prune()
        assert {job.id for job in await stage.all_jobs()} == {succeeded, failed, cancelled, expired, waiting}
        stage.clock.advance(SECOND)
        await stage.prune()
        assert {job.id for job in await stage.all_jobs()} == {failed, cancelled, expired, waiting}
        stage.clock.advance(KEEP.failed)
        await stage.prune()
        assert await stage.store.get([succeeded, failed, waiting]) == [None, None, await stage.job(waiting)]
        assert [job.id for job in await stage.all_jobs()] == [waiting]

    async def test_the_anchor_of_a_batch_is_kept_for_the_longest_retention(self, stage: StoreStage) -> None:
        anchor = await stage.end_job(key="batch", anchor=True)
        cancelled = (await stage.submit(key="another", anchor=True)).id
        await stage.store.cancel([cancelled])
        await stage.end_job()
        stage.clock.advance(KEEP.succeeded)
        await stage.prune()
        assert {job.id for job in await stage.all_jobs()} == {anchor, cancelled}
        assert (await stage.submit(key="batch")).id == anchor
        stage.clock.advance(KEEP.failed - KEEP.succeeded)
        await stage.prune(1)
        await stage.prune()
        assert await stage.all_jobs() == []
        assert (await stage.submit(key="batch")).id != anchor

    async def test_pruning_keeps_to_its_limit_and_adjusts_the_counts(self, stage: StoreStage) -> None:
        for state in (State.SUCCEEDED, State.FAILED) * 4:
            await stage.end_job(state)
        stage.clock.advance(KEEP.failed)
        expire = stage.store.capabilities.rows_expire
        assert [await stage.prune(3) for _ in range(4)] == ([0, 0, 0, 0] if expire else [3, 3, 2, 0])
        stage.clock.advance(DAY if expire else timedelta())
        assert (await stage.read_counts(), await stage.count_jobs()) == (set(), set())

    async def test_pruning_names_jobs_that_leave_objects_behind(self, stage: StoreStage) -> None:
        await stage.end_job()
        by_params = await stage.end_job(params=None, params_object=LINK)
        by_inputs = await stage.end_job(inputs=(FileLink("a", LINK),))
        lease = await stage.run_job()
        await stage.settle(lease, outputs=(FileLink("b", LINK),))
        large = await stage.run_job()
        await stage.settle(large, result_object=LINK)
        stage.clock.advance(KEEP.failed)
        if stage.store.capabilities.rows_expire:
            assert await stage.all_jobs() == []
            return
        pruned = await stage.sweeps.prune(KEEP, 99)
        assert (pruned.jobs, set(pruned.owners)) == (5, {by_params, by_inputs, lease.job, large.job})

    async def test_nothing_of_a_pruned_job_is_left(self, stage: StoreStage) -> None:
        lease = await stage.run_job(key="k", tags=("red",))
        await stage.store.append_log(lease, [LogLine(stage.clock.now(), "stdout", "hello")], 99)
        await stage.settle(lease)
        stage.clock.advance(KEEP.failed)
        await stage.prune()
        assert await stage.store.read_log(lease.job, 0, 9) == ([], 0)
        assert (await stage.settle(lease)).loss is Loss.GONE
        heir = await stage.submit(key="k")
        assert heir.id != lease.job
        assert await stage.store.read_log(heir.id, 0, 9) == ([], 0)
        assert await stage.all_jobs(JobFilter(tag="red")) == []
