"""Settle: one outcome, that of the newest fence."""

import pytest

from penstock.model.job import ErrorCode, FileLink, JobError, Lease, Loss, ObjectLink, Progress, Settlement
from penstock.model.lifecycle import TERMINAL, Move, State
from penstock.testing.store_contract.stage import LEASE, MINUTE, OnStage, StoreStage

LINK = ObjectLink("objects/1", 9, "sha256:00", "text/plain")
ERROR = JobError(ErrorCode.RAISED, "boom", attempt=1, error_class="ValueError", traceback="…")


class SettleContract(OnStage):
    @pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
    async def test_an_outcome_ends_the_job(self, stage: StoreStage, state: State) -> None:
        lease = await stage.run_job()
        settled = await stage.settle(lease, state, reason="because")
        assert settled.event is not None
        event = settled.event
        assert (event.move, event.before, event.after) == (Move.SETTLE, State.RUNNING, state)
        assert (event.fence, event.attempt, event.reason) == (1, 1, "because")
        job = await stage.job(lease.job)
        assert (job.state, job.reason, job.completed_at) == (state, "because", stage.clock.now())
        assert (job.worker, job.started_at) == ("w1", stage.clock.now())

    async def test_an_outcome_tells_how_long_its_attempt_ran(self, stage: StoreStage) -> None:
        leases = [await stage.run_job() for _ in range(3)]
        stage.clock.advance(MINUTE)
        states = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
        settled = [await stage.settle(lease, state) for lease, state in zip(leases, states, strict=True)]
        assert [one.event and one.event.ran_seconds for one in settled] == [60.0, 60.0, 60.0]

    async def test_what_an_attempt_gave_is_kept(self, stage: StoreStage) -> None:
        lease, large = await stage.run_job(), await stage.run_job()
        await stage.settle(lease, result=b'{"a":1}', outputs=(FileLink("out", LINK),))
        await stage.settle(large, result_object=LINK)
        job = await stage.job(lease.job)
        assert (job.result, job.outputs, job.error) == (b'{"a":1}', (FileLink("out", LINK),), None)
        assert (await stage.job(large.job)).result_object == LINK

    async def test_a_retry_is_scheduled_from_now(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.renew("w1", [Lease(lease.job, lease.fence, Progress(0.5))], LEASE)
        stage.clock.advance(MINUTE)
        await stage.settle(lease, State.SCHEDULED, retry_in=MINUTE, error=ERROR)
        job = await stage.job(lease.job)
        assert (job.state, job.due_at, job.error) == (State.SCHEDULED, stage.clock.now() + MINUTE, ERROR)
        assert (job.attempt, job.fence, job.losses) == (1, 1, 0)
        assert (job.worker, job.progress, job.completed_at) == (None, None, None)

    async def test_the_next_attempt_counts_on(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.settle(lease, State.SCHEDULED, retry_in=MINUTE, error=ERROR)
        stage.clock.advance(MINUTE)
        await stage.sweeps.promote(9)
        (claim,) = await stage.claim(lease.job)
        assert (claim.attempt, claim.fence) == (2, 2)
        await stage.settle(Lease(claim.job, claim.fence))
        job = await stage.job(lease.job)
        assert (job.state, job.attempt, job.error) == (State.SUCCEEDED, 2, ERROR)

    async def test_a_retry_of_a_marked_job_is_cancelled(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.cancel([lease.job])
        settled = await stage.settle(lease, State.SCHEDULED, retry_in=MINUTE, error=ERROR)
        assert settled.event is not None
        assert settled.event.after is State.CANCELLED
        job = await stage.job(lease.job)
        assert (job.state, job.completed_at, job.error) == (State.CANCELLED, stage.clock.now(), ERROR)

    async def test_a_marked_job_may_still_succeed(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.cancel([lease.job])
        await stage.settle(lease)
        assert (await stage.job(lease.job)).state is State.SUCCEEDED

    async def test_a_loss_is_counted(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.settle(lease, State.SCHEDULED, retry_in=MINUTE, loss=True)
        assert (await stage.job(lease.job)).losses == 1

    async def test_an_old_fence_settles_nothing(self, stage: StoreStage) -> None:
        old = await stage.run_job()
        await stage.store.release([old])
        new = await stage.claim_again(old.job)
        for state, retry_in in ((State.FAILED, None), (State.SCHEDULED, MINUTE)):
            refused = await stage.settle(old, state, retry_in=retry_in)
            assert (refused.event, refused.loss) == (None, Loss.LOST)
        accepted = await stage.settle(new, result=b"2")
        assert accepted.event is not None
        late = await stage.settle(old, result=b"1")
        assert (late.event, late.loss, (await stage.job(old.job)).result) == (None, Loss.LOST, b"2")

    async def test_a_fence_that_was_never_given_settles_nothing(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        assert (await stage.settle(Lease(lease.job, lease.fence + 1))).loss is Loss.LOST
        assert (await stage.job(lease.job)).state is State.RUNNING

    async def test_a_repeated_settle_is_known_as_mine(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.settle(lease, result=b"1")
        again = await stage.settle(lease, State.FAILED)
        assert (again.event, again.loss) == (None, Loss.MINE_ALREADY)
        job = await stage.job(lease.job)
        assert (job.state, job.result) == (State.SUCCEEDED, b"1")

    async def test_of_two_outcomes_in_one_batch_the_first_is_kept(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        both = [Settlement(job=lease.job, fence=lease.fence, state=state) for state in (State.FAILED, State.SUCCEEDED)]
        first, second = await stage.store.settle(both)
        assert first.event is not None
        assert (second.event, second.loss) == (None, Loss.MINE_ALREADY)
        assert (await stage.job(lease.job)).state is State.FAILED

    async def test_a_refused_settlement_hurts_no_other(self, stage: StoreStage) -> None:
        leases = [await stage.run_job() for _ in range(5)]
        leases[1] = Lease(leases[1].job, 99)
        leases[3] = Lease(stage.unknown(), 1)
        batch = [Settlement(job=lease.job, fence=lease.fence, state=State.SUCCEEDED) for lease in leases]
        answers = await stage.store.settle(batch)
        assert [(answer.job, answer.fence) for answer in answers] == [(lease.job, lease.fence) for lease in leases]
        assert [answer.loss for answer in answers] == [None, Loss.LOST, None, Loss.GONE, None]
        assert [answer.event is not None for answer in answers] == [True, False, True, False, True]

    async def test_a_lease_that_ran_out_but_was_not_reclaimed_still_settles(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        stage.clock.advance(LEASE * 2)
        assert (await stage.settle(lease)).event is not None
        assert await stage.sweeps.reclaim(9) == []

    @pytest.mark.parametrize("state", sorted(TERMINAL - {State.EXPIRED}))
    async def test_an_ended_job_never_changes(self, stage: StoreStage, state: State) -> None:
        lease = await stage.run_job(expires_at=stage.clock.now() + LEASE)
        await stage.settle(lease, state)
        before = await stage.job(lease.job)
        stage.clock.advance(LEASE * 2)
        await stage.settle(lease, State.SCHEDULED, retry_in=MINUTE)
        await stage.store.release([lease])
        await stage.store.renew("w1", [lease], LEASE)
        await stage.store.cancel([lease.job], force=True)
        await stage.claim(lease.job)
        events = [*await stage.sweeps.reclaim(9), *await stage.sweeps.promote(9), *await stage.sweeps.expire(9)]
        assert (events, await stage.job(lease.job)) == ([], before)
