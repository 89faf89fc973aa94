"""What a shard takes: nothing new once it is closed, and keys only by the ring that it was told."""

from datetime import timedelta

import msgspec
import pytest

from penstock.model.clock import to_millis
from penstock.model.errors import MapChanged
from penstock.model.ids import new_job_id
from penstock.model.job import NewJob
from penstock.model.notices import Notice, NoticeChange, NoticeKind
from penstock.model.shards import Ring
from penstock.model.submission import Inserted, Known, Misplaced
from penstock.store.seam import Shard
from penstock.testing.store_contract.schedules import move_of, schedule
from penstock.testing.store_contract.stage import MINUTE, SECOND, TICKET, OnStage, StoreStage


def shard_of_stage(stage: StoreStage) -> Shard:
    """The first shard of the store, or the store itself."""
    return stage.store.shards()[0]


def new_at(stage: StoreStage, shard: Shard, **fields: object) -> NewJob:
    job = new_job_id(to_millis(stage.clock.now()), shard.shard, stage.rng)
    return stage.new(id=job, **fields)


def ring_at(stage: StoreStage, shard: Shard, later: timedelta = MINUTE) -> Notice:
    """A ring of this shard alone, told later than any before it."""
    return Notice(NoticeKind.RING, "ring", msgspec.json.encode(Ring((shard.shard,))), stage.clock.now() + later)


class AdmissionContract(OnStage):
    async def test_a_closed_shard_takes_no_new_job_and_an_open_one_does(self, stage: StoreStage) -> None:
        shard = shard_of_stage(stage)
        before = await shard.submit([new_at(stage, shard), new_at(stage, shard, key="k")], TICKET)
        await shard.admit(jobs=False)
        news = [new_at(stage, shard), new_at(stage, shard, key="l", tags=("red",))]
        assert await shard.submit(news, TICKET) == [Misplaced(new) for new in news]
        assert {job.id for job in await stage.all_jobs()} == {one.id for one in before}
        assert await stage.read_counts() == await stage.count_jobs()
        await shard.admit(jobs=True)
        assert [type(one) for one in await shard.submit(news, TICKET)] == [Inserted, Inserted]

    async def test_what_a_closed_shard_has_goes_on(self, stage: StoreStage) -> None:
        shard = shard_of_stage(stage)
        (made,) = await shard.submit([new_at(stage, shard)], TICKET)
        await shard.admit(jobs=False)
        lease = await stage.claim_again(made.id)
        assert (await stage.settle(lease)).event is not None

    async def test_a_closed_shard_takes_no_new_schedule_and_no_tick(self, stage: StoreStage) -> None:
        shard = shard_of_stage(stage)
        there = await shard.put_schedule(schedule(stage, "there"), None)
        assert there is not None
        await shard.admit(jobs=False)
        with pytest.raises(MapChanged):
            await shard.put_schedule(schedule(stage, "new"), None)
        job = new_at(stage, shard, schedule="there", tick_at=there.next_tick_at)
        with pytest.raises(MapChanged):
            await shard.tick([move_of(there, [job])], TICKET)
        assert await shard.get_schedules(["there", "new"]) == [there, None]
        assert await stage.all_jobs() == []
        assert await shard.ticks("there", None, 9) == []

    async def test_a_key_is_taken_by_the_ring_that_the_shard_was_told(self, stage: StoreStage) -> None:
        shard = shard_of_stage(stage)
        told = ring_at(stage, shard)
        await shard.put_notices([told])
        epoch = to_millis(told.told_at)
        news = [
            new_at(stage, shard, key="a", ring=epoch),
            new_at(stage, shard, key="b", ring=epoch - 1),
            new_at(stage, shard, key="c", ring=epoch + 1),
            new_at(stage, shard, key="d", ring=0),
            new_at(stage, shard, key="e"),
            new_at(stage, shard),
        ]
        answers = await shard.submit(news, TICKET)
        assert [type(one) for one in answers] == [Inserted, Misplaced, Misplaced, Misplaced, Inserted, Inserted]
        assert {job.id for job in await stage.all_jobs()} == {news[index].id for index in (0, 4, 5)}
        with pytest.raises(MapChanged):
            await shard.put_schedule(schedule(stage, "new"), None, epoch - 1)
        assert await shard.put_schedule(schedule(stage, "new"), None, epoch) is not None
        assert await shard.put_schedule(schedule(stage, "new"), None, epoch) is None

    async def test_one_job_alone_is_admitted_as_in_a_batch(self, stage: StoreStage) -> None:
        shard = shard_of_stage(stage)
        told = ring_at(stage, shard)
        await shard.put_notices([told])
        epoch = to_millis(told.told_at)
        (there,) = await shard.submit([new_at(stage, shard, key="a", ring=epoch, fingerprint=b"1")], TICKET)
        (ended,) = await shard.submit([new_at(stage, shard, key="b", ring=epoch, fingerprint=b"1")], TICKET)
        assert [type(there), type(ended)] == [Inserted, Inserted]
        await stage.store.cancel([ended.id])
        answers = {
            new_at(stage, shard, key="a", ring=epoch, fingerprint=b"1"): (Known, False),
            new_at(stage, shard, key="b", ring=epoch, fingerprint=b"2"): (Known, True),
            new_at(stage, shard, key="c", ring=epoch - 1): (Misplaced, False),
        }
        for new, expected in answers.items():
            (answer,) = await shard.submit([new], TICKET)
            assert (type(answer), answer.conflict) == expected, new.key
        await shard.admit(jobs=False)
        closed = new_at(stage, shard, key="f", ring=epoch)
        assert await shard.submit([closed], TICKET) == [Misplaced(closed)]
        assert {job.id for job in await stage.all_jobs()} == {there.id, ended.id}
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_an_older_ring_changes_nothing_and_a_newer_one_counts(self, stage: StoreStage) -> None:
        shard = shard_of_stage(stage)
        told = ring_at(stage, shard)
        await shard.put_notices([told])
        await shard.put_notices([ring_at(stage, shard, SECOND)])
        newer = ring_at(stage, shard, 2 * MINUTE)
        assert await shard.change_notices([NoticeChange(newer, None)]) == [False]
        (made,) = await shard.submit([new_at(stage, shard, key="a", ring=to_millis(told.told_at))], TICKET)
        assert isinstance(made, Inserted)
        assert await shard.change_notices([NoticeChange(newer, told.told_at)]) == [True]
        (made,) = await shard.submit([new_at(stage, shard, key="b", ring=to_millis(newer.told_at))], TICKET)
        assert isinstance(made, Inserted)

    async def test_the_job_of_a_key_is_found_by_who_goes_by_the_same_ring(self, stage: StoreStage) -> None:
        shard = shard_of_stage(stage)
        (made,) = await shard.submit([new_at(stage, shard, key="k", fingerprint=b"1")], TICKET)
        told = ring_at(stage, shard)
        epoch = to_millis(told.told_at)
        asked = [
            new_at(stage, shard, key="k", fingerprint=b"1", ring=epoch),
            new_at(stage, shard, key="k", fingerprint=b"2", ring=epoch),
            new_at(stage, shard, key="l", ring=epoch),
        ]
        assert await shard.find_keyed(asked) == [Misplaced(new) for new in asked]
        await shard.put_notices([told])
        found = await shard.find_keyed(asked)
        assert found == [Known(made.job), Known(made.job, conflict=True), None]

    async def test_whether_old_keys_are_left_can_be_told(self, stage: StoreStage) -> None:
        shard = shard_of_stage(stage)
        before = stage.clock.now()
        await shard.submit([new_at(stage, shard, key="k")], TICKET)
        stage.clock.advance(SECOND)
        between = stage.clock.now()
        await shard.submit([new_at(stage, shard)], TICKET)
        assert [await shard.has_keys_before(at) for at in (before, between)] == [False, True]
        (found,) = [job for job in await stage.all_jobs() if job.created_at == before]
        await shard.cancel([found.id])
        assert await shard.has_keys_before(between), "it has ended, and its key lasts as long as it is kept"
