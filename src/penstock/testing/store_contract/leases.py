"""Claim, renew, release, reclaim: a lease may be lost, a fence may not."""

import asyncio
from datetime import timedelta

import pytest

from penstock.model.job import BacklogKey, ErrorCode, FileLink, Lease, Loss, ObjectLink, Progress, Renewal
from penstock.model.lifecycle import POISON_LOSSES, Move, State
from penstock.testing.store_contract.stage import LEASE, MINUTE, SECOND, TICKET, OnStage, StoreStage

LINK = ObjectLink("objects/1", 9, "sha256:00", "text/plain")


class LeaseContract(OnStage):
    async def test_a_claim_starts_an_attempt(self, stage: StoreStage) -> None:
        job = await stage.submit()
        stage.clock.advance(SECOND)
        (claim,) = await stage.claim(job.id, worker="w7")
        assert (claim.job, claim.fence, claim.attempt, claim.lease_seconds) == (job.id, 1, 1, LEASE.total_seconds())
        found = await stage.job(job.id)
        assert (found.state, found.fence, found.attempt) == (State.RUNNING, 1, 1)
        assert (found.worker, found.started_at) == ("w7", stage.clock.now())

    async def test_a_claim_carries_what_the_worker_needs(self, stage: StoreStage) -> None:
        job = await stage.submit(
            queue="slow",
            params=b'{"a":1}',
            timeout=timedelta(seconds=2.5),
            tags=("red",),
            inputs=(FileLink("a", LINK),),
        )
        (claim,) = await stage.claim(job.id)
        assert (claim.type, claim.queue, bytes(claim.params)) == ("mail", "slow", b'{"a":1}')
        assert (claim.timeout_seconds, claim.tags, claim.inputs, claim.alone) == (2.5, ("red",), job.inputs, False)

    async def test_large_params_are_claimed_as_their_link(self, stage: StoreStage) -> None:
        job = await stage.submit(params=None, params_object=LINK)
        (claim,) = await stage.claim(job.id)
        assert (claim.params_object, bytes(claim.params)) == (LINK, b"null")

    async def test_claims_come_in_the_order_of_their_tickets(self, stage: StoreStage) -> None:
        jobs = [answer.job.id for answer in await stage.store.submit([stage.new() for _ in range(300)], TICKET)]
        jobs.reverse()
        assert [claim.job for claim in await stage.claim(*jobs)] == jobs

    async def test_a_doubled_ticket_yields_one_claim(self, stage: StoreStage) -> None:
        job = await stage.submit()
        assert len(await stage.claim(job.id, job.id)) == 1
        assert await stage.claim(job.id) == []

    async def test_concurrent_claims_have_one_winner(self, stage: StoreStage) -> None:
        job = await stage.submit()
        answers = await asyncio.gather(*(stage.claim(job.id, worker=f"w{number}") for number in range(9)))
        assert sum(map(len, answers)) == 1

    async def test_only_queued_jobs_are_claimed(self, stage: StoreStage) -> None:
        later = await stage.submit(delay=MINUTE)
        cancelled = await stage.submit()
        await stage.store.cancel([cancelled.id])
        ended = await stage.end_job()
        queued = await stage.submit()
        claims = await stage.claim(later.id, cancelled.id, ended, stage.unknown(), queued.id)
        assert [claim.job for claim in claims] == [queued.id]

    async def test_an_expired_job_is_not_claimed(self, stage: StoreStage) -> None:
        job = await stage.submit(expires_at=stage.clock.now() + SECOND)
        stage.clock.advance(SECOND)
        assert await stage.claim(job.id) == []

    async def test_a_job_whose_ticket_lapsed_can_still_be_claimed(self, stage: StoreStage) -> None:
        job = await stage.submit(ticketed=True)
        await stage.sweeps.expire_tickets(None)
        assert len(await stage.claim(job.id)) == 1

    async def test_a_claimed_job_is_not_dispatched(self, stage: StoreStage) -> None:
        await stage.run_job()
        assert await stage.dispatch({"mail": 9}) == []

    async def test_a_renewed_lease_is_not_reclaimed(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        stage.clock.advance(LEASE - SECOND)
        assert await stage.store.renew("w1", [lease], LEASE) == [Renewal(lease.job, lease.fence)]
        stage.clock.advance(LEASE - SECOND)
        assert await stage.sweeps.reclaim(9) == []
        stage.clock.advance(SECOND)
        assert len(await stage.sweeps.reclaim(9)) == 1

    async def test_renew_keeps_the_newest_progress(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        half = Progress(0.5, "half")
        await stage.store.renew("w1", [Lease(lease.job, lease.fence, half)], LEASE)
        await stage.store.renew("w1", [lease], LEASE)
        assert (await stage.job(lease.job)).progress == half

    async def test_renew_answers_in_order_and_says_why_it_refused(self, stage: StoreStage) -> None:
        marked = await stage.run_job()
        await stage.store.cancel([marked.job])
        settled = await stage.run_job()
        await stage.settle(settled)
        held, gone = await stage.run_job(), Lease(stage.unknown(), 1)
        stale = Lease(held.job, held.fence - 1)
        answers = await stage.store.renew("w1", [gone, stale, held, settled, marked], LEASE)
        assert [answer.job for answer in answers] == [gone.job, held.job, held.job, settled.job, marked.job]
        assert [answer.loss for answer in answers] == [Loss.GONE, Loss.LOST, None, Loss.MINE_ALREADY, None]
        assert [answer.cancel for answer in answers] == [False, False, False, False, True]

    async def test_an_old_fence_renews_nothing(self, stage: StoreStage) -> None:
        old = await stage.run_job()
        await stage.store.release([old])
        await stage.claim_again(old.job)
        stage.clock.advance(LEASE - SECOND)
        (answer,) = await stage.store.renew("w1", [Lease(old.job, old.fence, Progress(0.9))], LEASE)
        assert answer.loss is Loss.LOST
        assert (await stage.job(old.job)).progress is None
        stage.clock.advance(SECOND)
        assert len(await stage.sweeps.reclaim(9)) == 1

    async def test_a_released_job_is_queued_unharmed(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.renew("w1", [Lease(lease.job, lease.fence, Progress(0.5))], LEASE)
        (settled,) = await stage.store.release([lease])
        assert settled.event is not None
        event = settled.event
        assert (event.move, event.before, event.after) == (Move.RELEASE, State.RUNNING, State.QUEUED)
        job = await stage.job(lease.job)
        assert (job.state, job.attempt, job.fence, job.losses) == (State.QUEUED, 0, 1, 0)
        assert (job.worker, job.started_at, job.progress) == (None, None, None)
        assert [ticket.job for ticket in await stage.dispatch({"mail": 9})] == [lease.job]

    async def test_a_job_released_with_a_delay_is_scheduled_unharmed(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        (settled,) = await stage.store.release([lease], delay=MINUTE)
        assert settled.event is not None
        assert (settled.event.before, settled.event.after) == (State.RUNNING, State.SCHEDULED)
        job = await stage.job(lease.job)
        assert (job.state, job.attempt, job.due_at) == (State.SCHEDULED, 0, stage.clock.now() + MINUTE)
        assert await stage.sweeps.promote(9) == []
        stage.clock.advance(MINUTE)
        assert [event.job for event in await stage.sweeps.promote(9)] == [lease.job]

    async def test_a_running_job_may_be_of_another_type_from_now_on(self, stage: StoreStage) -> None:
        lease, other = await stage.run_job(), await stage.run_job()
        await stage.store.retype([lease, Lease(other.job, other.fence + 1)], "mail!1a")
        assert [(await stage.job(one.job)).type for one in (lease, other)] == ["mail!1a", "mail"]
        assert {(one.type, one.state, one.jobs) for one in await stage.store.counts() if one.jobs} == {
            ("mail", State.RUNNING, 1),
            ("mail!1a", State.RUNNING, 1),
        }
        await stage.store.release([lease])
        await stage.store.retype([lease], "mail")
        assert (await stage.job(lease.job)).type == "mail!1a"
        tickets = await stage.sweeps.dispatch({BacklogKey("mail", "mail!1a"): 9}, TICKET)
        assert [(one.type, one.job) for one in tickets] == [("mail!1a", lease.job)]

    async def test_an_old_fence_releases_nothing(self, stage: StoreStage) -> None:
        old = await stage.run_job()
        await stage.store.release([old])
        (again,) = await stage.store.release([old])
        assert (again.event, again.loss) == (None, Loss.MINE_ALREADY)
        new = await stage.claim_again(old.job)
        (late,) = await stage.store.release([old])
        assert (late.event, late.loss) == (None, Loss.LOST)
        assert (await stage.job(new.job)).state is State.RUNNING

    async def test_a_marked_job_is_cancelled_when_released(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.cancel([lease.job])
        await stage.store.release([lease])
        job = await stage.job(lease.job)
        assert (job.state, job.completed_at) == (State.CANCELLED, stage.clock.now())
        assert await stage.claim(lease.job) == []

    async def test_an_old_fence_gives_no_marked_job_back(self, stage: StoreStage) -> None:
        old = await stage.run_job()
        await stage.store.release([old])
        new = await stage.claim_again(old.job)
        await stage.store.cancel([old.job])
        (late,) = await stage.store.release([old])
        assert (late.event, late.loss) == (None, Loss.LOST)
        assert (await stage.job(old.job)).state is State.RUNNING
        assert (await stage.settle(new)).loss is None

    async def test_suspects_are_claimed_alone_from_then_on(self, stage: StoreStage) -> None:
        suspect, other = await stage.run_job(), await stage.run_job()
        await stage.store.release([suspect], suspects=True)
        await stage.store.release([other])
        claims = await stage.claim(suspect.job, other.job)
        assert [claim.alone for claim in claims] == [True, False]
        await stage.store.release([Lease(suspect.job, claims[0].fence)])
        (claim,) = await stage.claim(suspect.job)
        assert claim.alone

    async def test_a_lease_that_ran_out_is_reclaimed(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.renew("w1", [lease], LEASE)
        stage.clock.advance(LEASE)
        (event,) = await stage.sweeps.reclaim(9)
        assert (event.job, event.move, event.before, event.after) == (
            lease.job, Move.RECLAIM, State.RUNNING, State.QUEUED,
        )  # fmt: skip
        job = await stage.job(lease.job)
        assert (job.state, job.attempt, job.losses, job.fence) == (State.QUEUED, 0, 1, lease.fence + 1)
        assert job.worker is None
        assert [ticket.job for ticket in await stage.dispatch({"mail": 9})] == [lease.job]

    async def test_reclaim_leaves_leases_that_hold_and_keeps_to_its_limit(self, stage: StoreStage) -> None:
        early = [await stage.run_job() for _ in range(3)]
        stage.clock.advance(SECOND)
        await stage.run_job()
        stage.clock.advance(LEASE - SECOND)
        assert len(await stage.sweeps.reclaim(2)) == 2
        assert {event.job for event in await stage.sweeps.reclaim(9)} < {lease.job for lease in early}
        assert await stage.sweeps.reclaim(9) == []

    async def test_whoever_lost_a_lease_can_write_nothing_more(self, stage: StoreStage) -> None:
        lost = await stage.run_job()
        stage.clock.advance(LEASE)
        await stage.sweeps.reclaim(9)
        await stage.claim_again(lost.job)
        before = await stage.job(lost.job)
        (renewal,) = await stage.store.renew("w1", [lost], LEASE)
        (released,) = await stage.store.release([lost])
        settled = await stage.settle(lost, result=b"1")
        assert (renewal.loss, released.loss, settled.loss) == (Loss.LOST, Loss.LOST, Loss.LOST)
        assert await stage.job(lost.job) == before

    async def test_a_job_that_loses_its_workers_is_poison(self, stage: StoreStage) -> None:
        job = await stage.submit()
        for _ in range(POISON_LOSSES):
            assert (await stage.job(job.id)).state is State.QUEUED
            await stage.lose(job.id)
        found = await stage.job(job.id)
        assert (found.state, found.losses, found.completed_at) == (State.FAILED, POISON_LOSSES, stage.clock.now())
        assert found.reason is not None
        assert found.error is not None
        assert found.error.code is ErrorCode.WORKER_LOST

    async def test_one_that_lost_two_workers_is_claimed_to_run_alone_in_the_next(self, stage: StoreStage) -> None:
        job = await stage.submit()
        alone = []
        for _ in range(POISON_LOSSES):
            (claim,) = await stage.claim(job.id)
            alone.append(claim.alone_in_worker)
            await stage.lose_claimed(Lease(claim.job, claim.fence))
        assert alone == [False, False, True]

    async def test_a_lost_worker_is_charged_to_nobody_who_was_not_alone_in_it(self, stage: StoreStage) -> None:
        """However many processes died under it before."""
        job = await stage.submit()
        for _ in range(POISON_LOSSES):
            await stage.settle(await stage.claim_again(job.id), State.SCHEDULED, retry_in=SECOND, loss=True)
            stage.clock.advance(SECOND)
            await stage.sweeps.promote(9)
        await stage.lose(job.id)
        assert ((await stage.job(job.id)).state, (await stage.job(job.id)).losses) == (State.QUEUED, POISON_LOSSES + 1)
        await stage.lose(job.id)
        assert (await stage.job(job.id)).state is State.FAILED

    @pytest.mark.parametrize("renewed", [False, True])
    async def test_a_claim_that_was_not_begun_is_lost_without_a_charge(self, stage: StoreStage, renewed: bool) -> None:
        job = await stage.submit()
        for _ in range(2):
            await stage.lose(job.id)
        for _ in range(POISON_LOSSES):
            lease = await stage.claim_again(job.id)
            if renewed:
                await stage.store.renew("w1", [Lease(lease.job, lease.fence, begun=False)], LEASE)
            stage.clock.advance(LEASE)
            (event,) = await stage.sweeps.reclaim(9)
            assert event.after is State.QUEUED
        assert (await stage.job(job.id)).losses == 2
        await stage.lose(job.id)
        assert (await stage.job(job.id)).state is State.FAILED

    async def test_what_has_begun_stays_so_under_its_lease_alone(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.renew("w1", [lease, Lease(lease.job, lease.fence, begun=False)], LEASE)
        stage.clock.advance(LEASE)
        await stage.sweeps.reclaim(9)
        assert (await stage.job(lease.job)).losses == 1
        again = await stage.claim_again(lease.job)
        await stage.store.renew("w1", [lease], LEASE)
        stage.clock.advance(LEASE)
        await stage.sweeps.reclaim(9)
        (found,) = await stage.store.get([again.job])
        assert found is not None
        assert found.losses == 1

    async def test_an_attempt_that_ended_by_itself_ends_the_suspicion(self, stage: StoreStage) -> None:
        job = await stage.submit()
        for _ in range(2):
            await stage.lose(job.id)
        await stage.store.release([await stage.claim_again(job.id)], suspects=True)
        (claim,) = await stage.claim(job.id)
        assert (claim.alone, claim.alone_in_worker) == (True, True)
        for loss in (True, False):
            await stage.settle(Lease(claim.job, claim.fence), State.SCHEDULED, retry_in=SECOND, loss=loss)
            stage.clock.advance(SECOND)
            await stage.sweeps.promote(9)
            (claim,) = await stage.claim(job.id)
            assert (claim.alone, claim.alone_in_worker) == (loss, loss)

    async def test_a_marked_job_is_cancelled_when_reclaimed(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.cancel([lease.job])
        stage.clock.advance(LEASE)
        (event,) = await stage.sweeps.reclaim(9)
        assert (event.after, (await stage.job(lease.job)).state) == (State.CANCELLED, State.CANCELLED)
