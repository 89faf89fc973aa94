"""After a restore: no fence from before counts any more, and none is given again."""

from datetime import timedelta

from penstock.model.fences import claims_of, epoch_of
from penstock.model.job import Lease, LogLine, Loss, Settled
from penstock.model.lifecycle import Move, State
from penstock.testing.store_contract.stage import LEASE, TICKET, OnStage, StoreStage

JSON_EXACT = 1 << 53
"""Up to which readers of JSON count exactly."""


async def restore(stage: StoreStage) -> None:
    """Say of every shard that it was put back from a backup."""
    for shard in stage.store.shards():
        await shard.raise_epoch()


class RestoreContract(OnStage):
    async def test_no_fence_from_before_a_restore_settles(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await restore(stage)
        assert await stage.settle(lease) == Settled(lease.job, lease.fence, loss=Loss.LOST)
        assert (await stage.settle(lease, State.SCHEDULED, retry_in=timedelta(0))).loss is Loss.LOST
        assert (await stage.job(lease.job)).state is State.RUNNING

    async def test_no_fence_from_before_a_restore_renews_releases_or_writes_a_log(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await restore(stage)
        (renewal,) = await stage.store.renew("w1", [lease], LEASE)
        (released,) = await stage.store.release([lease])
        await stage.store.retype([lease], "other")
        line = LogLine(stage.clock.now(), "stdout", "I am still here", 1)
        assert (renewal.loss, released.loss) == (Loss.LOST, Loss.LOST)
        assert not await stage.store.append_log(lease, [line], 1000)
        assert (await stage.job(lease.job)).type == "mail"

    async def test_what_ran_is_taken_back_and_charged_with_nothing(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.renew("w1", [Lease(lease.job, lease.fence, begun=True)], LEASE)
        await restore(stage)
        (event,) = await stage.sweeps.reclaim(9)
        job = await stage.job(lease.job)
        assert (event.move, event.after, job.state) == (Move.RECLAIM, State.QUEUED, State.QUEUED)
        assert (job.attempt, job.losses) == (0, 0)
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_what_ran_and_was_asked_to_cancel_is_cancelled(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.cancel([lease.job])
        await restore(stage)
        await stage.sweeps.reclaim(9)
        assert (await stage.job(lease.job)).state is State.CANCELLED

    async def test_every_fence_after_a_restore_is_above_all_before(self, stage: StoreStage) -> None:
        """Also of jobs that the backup lacked: their ids may come again, with nothing known about them."""
        before = await stage.run_job()
        waiting = await stage.submit()
        await restore(stage)
        await stage.sweeps.reclaim(9)
        new, (next_job,) = await stage.submit(), await stage.store.submit([stage.new()], TICKET)
        claims = await stage.claim(before.job, waiting.id, new.id)
        claims += await stage.claim_next({"mail": 1})
        assert [claim.job for claim in claims] == [before.job, waiting.id, new.id, next_job.job.id]
        assert all(before.fence + 1_000_000 < claim.fence < JSON_EXACT for claim in claims)
        assert all(epoch_of(claim.fence) for claim in claims)

    async def test_restores_within_one_second_have_epochs_of_their_own(self, stage: StoreStage) -> None:
        fences = []
        for _ in range(3):
            lease = await stage.run_job()
            fences.append(lease.fence)
            await restore(stage)
        assert len({epoch_of(fence) for fence in fences}) == 3
        assert fences == sorted(fences)

    async def test_a_fence_counts_on_over_a_restore(self, stage: StoreStage) -> None:
        """An attempt is doubtful when an earlier claim came to nothing, not because its shard was restored."""
        retried = await stage.run_job()
        await stage.settle(retried, State.SCHEDULED, retry_in=timedelta(0))
        await restore(stage)
        await stage.sweeps.promote(9)
        fresh = await stage.submit()
        again, first = await stage.claim(retried.job, fresh.id)
        assert [claims_of(claim.fence) for claim in (again, first)] == [2, 1]
        assert (again.doubtful, first.doubtful) == (False, False)

    async def test_a_job_of_a_later_epoch_ends_with_its_whole_fence(self, stage: StoreStage) -> None:
        await restore(stage)
        settled, cancelled, lost = [await stage.run_job() for _ in range(3)]
        await stage.settle(settled)
        await stage.store.cancel([cancelled.job], force=True)
        await stage.store.cancel([lost.job])
        stage.clock.advance(LEASE)
        await stage.sweeps.reclaim(9)
        jobs = [await stage.job(lease.job) for lease in (settled, cancelled, lost)]
        assert [job.fence for job in jobs] == [settled.fence, cancelled.fence + 1, lost.fence + 1]
        assert (await stage.settle(settled)).loss is Loss.MINE_ALREADY
        assert (await stage.settle(cancelled)).loss is Loss.LOST

    async def test_a_log_of_a_later_epoch_is_kept_once(self, stage: StoreStage) -> None:
        await restore(stage)
        lease = await stage.run_job()
        lines = [LogLine(stage.clock.now(), "stdout", text, 1) for text in ("one", "two")]
        await stage.store.append_log(lease, lines, 1000, 0)
        await stage.store.append_log(lease, lines, 1000, 0)
        kept, _ = await stage.store.read_log(lease.job, 0, 9)
        assert [line.text for line in kept] == ["one", "two"]

    async def test_tickets_from_before_a_restore_are_given_again(self, stage: StoreStage) -> None:
        """The broker may have handed them to workers whose claims the backup lacks."""
        job = await stage.submit(ticketed=True)
        assert await stage.dispatch({"mail": 9}) == []
        await restore(stage)
        assert [ticket.job for ticket in await stage.dispatch({"mail": 9})] == [job.id]
