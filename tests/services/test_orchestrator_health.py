"""One shard of several is ill, away, new or leaving: who notices, and who does not."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.model.errors import Conflict, NotFound, StoreUnavailable
from penstock.model.ids import ShardId, shard_of
from penstock.model.job import JobFilter, Lease, Loss, Settlement, Ticket
from penstock.model.lifecycle import State
from penstock.model.notices import Notice
from penstock.model.schedule import Every, Schedule
from penstock.model.shards import ShardState
from penstock.model.submission import Inserted, Misplaced
from penstock.model.workers import DrainRequest, Worker
from penstock.store.answers import require
from penstock.store.seam import schedule_key
from tests.services.faulty_shards import LEASE, TICKET, Behaviour, FaultyShards, key_at, wait_for_repairs

LONG = timedelta(seconds=60)
ILL = pytest.mark.parametrize("behaviour", [Behaviour.RAISES, Behaviour.HANGS])


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[FaultyShards]:
    async with FaultyShards(tmp_path) as case:
        yield case


def schedule(case: FaultyShards, name: str) -> Schedule:
    now = case.clock.now()
    return Schedule(name=name, when=Every(LONG), type="mail", next_tick_at=now, created_at=now, updated_at=now)


class TestIll:
    @ILL
    async def test_new_jobs_without_a_key_go_elsewhere(self, case: FaultyShards, behaviour: Behaviour) -> None:
        store = await case.orchestrator()
        assert {store.shard_for() for _ in range(99)} == {0, 1, 2}
        await case.falls(store, 2, behaviour)
        assert {store.shard_for() for _ in range(99)} == {0, 1}

    async def test_the_place_of_a_key_stays_and_its_submit_names_the_shard(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        keys = [str(number) for number in range(99)]
        homes = [store.shard_for(key) for key in keys]
        await case.falls(store, 2)
        assert [store.shard_for(key) for key in keys] == homes
        with pytest.raises(StoreUnavailable, match="shard 2 does not answer since 2030") as raised:
            await store.submit([case.new(2, key_at(store, 2))], TICKET)
        assert (raised.value.details["shard"], raised.value.details["retry_after"]) == (2, 1)
        (made,) = await store.submit([case.new(1, key_at(store, 1))], TICKET)
        assert isinstance(made, Inserted)

    @ILL
    async def test_moves_and_reads_of_its_jobs_name_it_and_others_are_as_ever(
        self, case: FaultyShards, behaviour: Behaviour
    ) -> None:
        store = await case.orchestrator()
        ill, fine = await case.submit(store, 2), await case.submit(store, 0)
        await case.falls(store, 2, behaviour)
        lease = Lease(ill.id, 1)
        for call in (
            store.get([ill.id]),
            store.cancel([ill.id]),
            store.claim([Ticket(ShardId(2), ill.id, "mail", "mail")], "w1", LEASE),
            store.renew("w1", [lease], LEASE),
            store.settle([Settlement(job=ill.id, fence=1, state=State.SUCCEEDED)]),
            store.release([lease]),
            store.read_log(ill.id, 0, 9),
            store.append_log(lease, [], 9),
        ):
            with pytest.raises(StoreUnavailable, match="shard 2"):
                await call
        assert await store.get([fine.id]) == [fine]
        assert len(await store.claim([Ticket(ShardId(0), fine.id, "mail", "mail")], "w1", LEASE)) == 1

    @ILL
    async def test_a_move_about_jobs_of_several_shards_answers_for_each_by_itself(
        self, case: FaultyShards, behaviour: Behaviour
    ) -> None:
        store = await case.orchestrator()
        ill, fine = await case.submit(store, 2), await case.submit(store, 0)
        (claim,) = await store.claim([Ticket(ShardId(0), fine.id, "mail", "mail")], "w1", LEASE)
        leases = [Lease(ill.id, 1), Lease(fine.id, claim.fence)]
        await case.falls(store, 2, behaviour)
        for call in (
            store.get([ill.id, fine.id]),
            store.renew("w1", leases, LEASE),
            store.release(leases),
            store.settle([Settlement(job=one.job, fence=one.fence, state=State.SUCCEEDED) for one in leases]),
            store.cancel([ill.id, fine.id]),
            store.submit([case.new(2), case.new(0)], TICKET),
        ):
            refused, answer = await call
            assert isinstance(refused, StoreUnavailable)
            assert refused.details["shard"] == 2
            assert not isinstance(answer, StoreUnavailable)

    async def test_a_shard_that_is_slow_holds_up_no_settle_of_another(self, case: FaultyShards) -> None:
        store = await case.orchestrator(deadline=LONG)
        slow, fine = await case.submit(store, 2), await case.submit(store, 0)
        case.shard(2).behaviour = Behaviour.HANGS
        async with asyncio.timeout(LONG.total_seconds() / 2):
            told, settled = await store.settle(
                [Settlement(job=job.id, fence=1, state=State.SUCCEEDED) for job in (slow, fine)]
            )
        assert isinstance(told, StoreUnavailable)
        assert not isinstance(settled, StoreUnavailable)

    async def test_lists_and_counts_leave_it_out_and_name_it(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        jobs = [await case.submit(store, number) for number in range(3)]
        await case.falls(store, 1)
        page = await store.page(JobFilter(), None, 9)
        assert {job.id for job in page.jobs} == {jobs[0].id, jobs[2].id}
        assert (page.missing, store.unavailable(), page.cursor) == ((1,), (1,), None)
        assert sum(count.jobs for count in await store.counts()) == 2
        assert set(await store.oldest_due()) == {"mail"}

    async def test_a_shard_that_fails_within_a_list_is_named_too(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        await case.submit(store, 1)
        case.shard(1).behaviour = Behaviour.RAISES
        page = await store.page(JobFilter(), None, 9)
        assert (page.jobs, page.missing) == ([], (1,))

    async def test_nobody_asks_or_waits_for_a_shard_that_is_down(self, case: FaultyShards) -> None:
        store = await case.orchestrator(deadline=LONG)
        job = await case.submit(store, 2)
        await case.falls(store, 2, Behaviour.HANGS)
        case.shard(2).asked.clear()
        async with asyncio.timeout(30):
            with pytest.raises(StoreUnavailable, match="shard 2"):
                await store.get([job.id])
            await store.page(JobFilter(), None, 9)
            await store.counts()
            await store.oldest_due()
            await store.notices()
            await store.put_notices([Notice("type", "mail", b"1", case.clock.now())])
        assert case.shard(2).asked == []

    async def test_whoever_waits_for_a_shard_when_it_falls_is_let_go(self, case: FaultyShards) -> None:
        store = await case.orchestrator(deadline=timedelta(hours=1))
        job = await case.submit(store, 2)
        case.shard(2).behaviour = Behaviour.HANGS
        waiting = asyncio.ensure_future(store.get([job.id]))
        await case.falls(store, 2, Behaviour.HANGS)
        async with asyncio.timeout(30):
            with pytest.raises(StoreUnavailable, match="shard 2 does not answer since"):
                await waiting

    async def test_a_call_that_takes_too_long_is_given_up(self, case: FaultyShards) -> None:
        store = await case.orchestrator(deadline=timedelta(seconds=1))
        job = case.new_id(2)
        case.shard(2).behaviour = Behaviour.HANGS
        with pytest.raises(StoreUnavailable, match=r"shard 2 did not answer within 1 s"):
            await store.get([job])
        assert store.unavailable() == ()
        with pytest.raises(StoreUnavailable):
            await store.get([job])
        assert store.unavailable() == (2,)

    async def test_all_down_is_unavailable(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        for number in range(2):
            await case.falls(store, number)
        with pytest.raises(StoreUnavailable, match="no shard takes new jobs now"):
            store.shard_for()
        for call in (store.probe(), store.counts(), store.page(JobFilter(), None, 9), store.now(), store.oldest_due()):
            with pytest.raises(StoreUnavailable):
                await call

    async def test_healed_everything_is_as_before(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        job = await case.submit(store, 2)
        await case.falls(store, 2)
        await case.heals(store, 2)
        assert await store.get([job.id]) == [job]
        assert {store.shard_for() for _ in range(99)} == {0, 1, 2}
        assert [one.id for one in (await store.page(JobFilter(), None, 9)).jobs] == [job.id]

    async def test_what_was_told_meanwhile_is_told_to_the_healed_one(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        await case.falls(store, 2)
        told = Notice("pause", "mail", b"true", case.clock.now())
        await store.put_notices([told])
        assert told not in await case.shard(2).inside.notices()
        await case.heals(store, 2)
        assert told in await store.notices()
        async with asyncio.timeout(60):
            while told not in await case.shard(2).inside.notices():
                await wait_for_repairs(store)

    async def test_workers_are_known_by_whoever_saw_them_last(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        worker = Worker(id="w", host="h", pid=1, version="1", types=(), capacity=1, started_at=case.clock.now())
        await store.put_worker(worker)
        await case.falls(store, 1)
        await store.put_worker(worker)
        seen_at = case.clock.now()
        await case.heals(store, 1)
        (found,) = await store.workers()
        assert found.seen_at == seen_at

    async def test_a_request_to_drain_is_heard_from_any_shard_that_has_it(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        worker = Worker(id="w", host="h", pid=1, version="1", types=(), capacity=1, started_at=case.clock.now())
        await store.put_worker(worker)
        await case.falls(store, 0)
        assert await store.ask_to_drain(["w"], timedelta(seconds=90)) == ["w"]
        await case.heals(store, 0)
        asked = await store.put_worker(worker)
        assert asked is not None
        assert 0 < (asked.patience_seconds or 0) <= 90
        assert await store.ask_to_drain(["w"], timedelta(0)) == ["w"]
        assert await store.put_worker(worker) == DrainRequest(0.0)

    async def test_the_job_of_a_shard_that_is_not_in_the_map_is_unknown(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        job = case.new_id(77)
        assert await store.get([job]) == [None]
        assert await store.claim([Ticket(ShardId(77), job, "mail", "mail")], "w1", LEASE) == []
        (settled,) = require(await store.settle([Settlement(job=job, fence=1, state=State.SUCCEEDED)]))
        (renewal,) = require(await store.renew("w1", [Lease(job, 1)], LEASE))
        assert (settled.loss, renewal.loss) == (Loss.GONE, Loss.GONE)
        assert [one.job for one in require(await store.cancel([job]))] == [None]
        assert not await store.append_log(Lease(job, 1), [], 9)
        assert await store.read_log(job, 0, 9) == ([], 0)
        (made,) = await store.submit([case.new(77)], TICKET)
        assert isinstance(made, Misplaced)


class TestOpening:
    async def test_a_shard_that_cannot_be_opened_is_tried_again_while_the_others_work(self, case: FaultyShards) -> None:
        case.closed = {"shard 1"}
        store = await case.orchestrator()
        assert (store.unavailable(), {store.shard_for() for _ in range(99)}) == ((1,), {0, 2})
        with pytest.raises(StoreUnavailable, match="shard 1 does not answer"):
            await store.get([case.new_id(1)])
        case.closed.clear()
        await case.until(lambda: not store.unavailable())
        assert (await case.submit(store, 1)).state is State.QUEUED

    async def test_without_any_shard_there_is_no_start(self, case: FaultyShards) -> None:
        case.closed = {"shard 0", "shard 1"}
        with pytest.raises(StoreUnavailable, match="no shard can be opened: shard 0: connection refused"):
            await case.orchestrator(range(2))

    async def test_a_ring_once_written_down_is_not_changed_by_settings(self, case: FaultyShards) -> None:
        before = await case.orchestrator(range(2))
        homes = [before.shard_for(str(number)) for number in range(99)]
        after = await case.orchestrator(range(3))
        assert [after.shard_for(str(number)) for number in range(99)] == homes
        assert 2 in {after.shard_for() for _ in range(99)}

    async def test_a_ring_is_not_written_down_before_all_shards_are_there(self, case: FaultyShards) -> None:
        case.closed = {"shard 1"}
        first = await case.orchestrator(range(2))
        assert {first.shard_for(str(number)) for number in range(99)} == {0, 1}
        assert await case.shard(0).inside.notices() == []
        case.closed.clear()
        await case.until(lambda: not first.unavailable())
        await first.refresh()
        assert [one.name for one in await case.shard(1).inside.notices()] == ["ring"]

    async def test_a_closed_store_is_closed_for_good(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            store.shard_for()
        assert (store.shards(), store.unavailable()) == ([], ())


class TestChangingTheMap:
    async def test_an_added_shard_is_used_here_at_once_and_elsewhere_soon(self, case: FaultyShards) -> None:
        here, elsewhere = await case.orchestrator(range(2)), await case.orchestrator(range(2))
        keys = [str(number) for number in range(99)]
        homes = [here.shard_for(key) for key in keys]
        added = await here.admin.add("shard 7", 7, 1.0, ShardState.ACTIVE, keyed=False)
        assert (added.number, 7 in {here.shard_for() for _ in range(99)}) == (7, True)
        job = await case.submit(here, 7)
        await case.until(lambda: 7 in {part.shard for part in elsewhere.shards()} and 7 not in elsewhere.unavailable())
        assert await elsewhere.get([job.id]) == [job]
        assert [here.shard_for(key) for key in keys] == [elsewhere.shard_for(key) for key in keys] == homes

    async def test_a_job_of_a_shard_that_was_just_added_elsewhere_is_found(self, case: FaultyShards) -> None:
        here, elsewhere = await case.orchestrator(range(2)), await case.orchestrator(range(2))
        await here.admin.add("shard 7", 7, 1.0, ShardState.ACTIVE, keyed=False)
        job = await case.submit(here, 7)
        case.clock.advance(timedelta(seconds=0.5))
        assert await elsewhere.get([job.id]) == [job]

    async def test_numbers_are_never_given_twice(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        for url, number in (("a", 2), ("b", 3)):
            added = await store.admin.add(url, None, 1.0, ShardState.DRAINING, keyed=False)
            assert added.number == number
        await store.admin.remove(ShardId(3), force=False)
        assert (await store.admin.add("c", None, 1.0, ShardState.ACTIVE, keyed=False)).number == 4

    @pytest.mark.parametrize(("url", "number"), [("shard 7", 1), ("shard 1", 7), ("shard 9", 7)])
    async def test_what_cannot_be_added_is_refused(self, case: FaultyShards, url: str, number: int) -> None:
        store = await case.orchestrator(range(2))
        case.closed = {"shard 9"}
        with pytest.raises(Conflict):
            await store.admin.add(url, number, 1.0, ShardState.ACTIVE, keyed=False)
        await store.refresh()
        assert [part.shard for part in store.shards()] == [0, 1]

    async def test_a_shard_drains_and_leaves(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        job = await case.submit(store, 2)
        number = ShardId(2)
        with pytest.raises(Conflict, match="--no-keyed"):
            await store.admin.remove(number, force=True)
        await store.admin.change(number, None, None, keyed=False)
        with pytest.raises(Conflict, match="penstock shards drain 2"):
            await store.admin.remove(number, force=True)
        await store.admin.change(number, None, ShardState.DRAINING, keyed=None)
        assert {store.shard_for() for _ in range(99)} | {store.shard_for(str(key)) for key in range(99)} == {0, 1}
        with pytest.raises(Conflict, match="1 jobs that have not ended"):
            await store.admin.remove(number, force=True)
        (claim,) = await store.claim([Ticket(number, job.id, "mail", "mail")], "w1", LEASE)
        await store.settle([Settlement(job=job.id, fence=claim.fence, state=State.SUCCEEDED)])
        with pytest.raises(Conflict, match="1 ended jobs"):
            await store.admin.remove(number, force=False)
        await store.admin.remove(number, force=True)
        assert ([part.shard for part in store.shards()], store.unavailable()) == ([0, 1], ())
        assert await store.get([job.id]) == [None]
        restarted = await case.orchestrator()
        assert [part.shard for part in restarted.shards()] == [0, 1]

    async def test_a_shard_that_was_set_down_is_not_asked_until_it_is_active_again(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        job = await case.submit(store, 2)
        await store.admin.change(ShardId(2), None, ShardState.DOWN, keyed=None)
        assert (store.unavailable(), [part.shard for part in store.shards()]) == ((2,), [0, 1])
        with pytest.raises(StoreUnavailable, match="shard 2 is out of use"):
            await store.get([job.id])
        assert store.shard_for(key_at(store, 2)) == 2
        await store.admin.change(ShardId(2), None, ShardState.ACTIVE, keyed=None)
        await case.until(lambda: not store.unavailable())
        assert await store.get([job.id]) == [job]

    async def test_a_shard_that_is_lost_for_good_can_be_given_up(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        await case.submit(store, 2)
        homes = {key: store.shard_for(key) for key in map(str, range(99)) if store.shard_for(key) != 2}
        await case.falls(store, 2)
        await store.admin.change(ShardId(2), None, ShardState.DRAINING, keyed=None)
        with pytest.raises(Conflict, match="keyed"):
            await store.admin.remove(ShardId(2), force=True)
        await store.admin.change(ShardId(2), None, ShardState.DOWN, keyed=None)
        with pytest.raises(Conflict, match="force"):
            await store.admin.remove(ShardId(2), force=False)
        await store.admin.remove(ShardId(2), force=True)
        assert [part.shard for part in store.shards()] == [0, 1]
        assert {key: store.shard_for(key) for key in homes} == homes

    async def test_a_drained_shard_that_does_not_answer_is_not_removed(self, case: FaultyShards) -> None:
        store = await case.orchestrator()
        await store.admin.change(ShardId(2), None, ShardState.DRAINING, keyed=False)
        await case.falls(store, 2)
        with pytest.raises(StoreUnavailable, match="shard 2"):
            await store.admin.remove(ShardId(2), force=True)

    async def test_the_ring_does_not_change_under_schedules(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        names = [f"s{number}" for number in range(20)]
        for name in names:
            assert await store.put_schedule(schedule(case, name), None) is not None
        with pytest.raises(Conflict, match=r"\d+ schedules would change their place"):
            await store.admin.add("shard 2", None, 1.0, ShardState.ACTIVE, keyed=True)
        with pytest.raises(Conflict, match="schedules would change their place"):
            await store.admin.change(ShardId(1), None, None, keyed=False)
        await case.falls(store, 1)
        with pytest.raises(StoreUnavailable, match="shard 1 does not answer, so its schedules"):
            await store.admin.change(ShardId(1), None, None, keyed=False)
        await case.heals(store, 1)
        for name in names:
            if store.shard_for(schedule_key(name)) == 1:
                await store.drop_schedule(name)
        await store.admin.change(ShardId(1), None, None, keyed=False)
        left = [one.name for one in await store.schedules(None, 99)]
        assert left
        assert [one is not None for one in await store.get_schedules(left)] == [True] * len(left)

    async def test_one_shard_stays_and_stays_keyed(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(1))
        with pytest.raises(Conflict, match="one shard at least must be keyed"):
            await store.admin.change(ShardId(0), None, None, keyed=False)
        with pytest.raises(NotFound, match="there is no shard 4; there are 0"):
            await store.admin.change(ShardId(4), 1.0, None, keyed=None)

    async def test_a_weight_of_zero_takes_no_new_jobs_but_those_with_a_key(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        await store.admin.change(ShardId(1), 0.0, None, keyed=None)
        assert {store.shard_for() for _ in range(99)} == {0}
        assert {store.shard_for(str(number)) for number in range(99)} == {0, 1}

    async def test_a_shard_is_opened_once_though_the_map_is_read_while_it_is_added(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        adding = store.admin.add("shard 7", 7, 1.0, ShardState.ACTIVE, keyed=False)
        await asyncio.gather(adding, *(store.refresh() for _ in range(5)))
        await store.refresh()
        assert (case.opens["shard 7"], [part.shard for part in store.shards()]) == (1, [0, 1, 7])

    async def test_an_added_shard_knows_the_whole_map_at_once(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        await store.admin.add("shard 7", 7, 1.0, ShardState.ACTIVE, keyed=False)
        assert {one.name for one in await case.shard(7).inside.notices()} == {"ring", "7"}

    async def test_a_map_is_not_forgotten_where_it_was_not_told(self, case: FaultyShards) -> None:
        """The only shard that answers has lost its notices, as one restored from an old backup would have."""
        store = await case.orchestrator(range(2))
        await store.admin.add("shard 7", 7, 1.0, ShardState.ACTIVE, keyed=False)
        for number in (0, 1):
            await case.falls(store, number)
        shelf = case.shard(7).inside
        await shelf.writer.run(lambda tx: tx.connection.execute("DELETE FROM notices").get)
        await store.refresh()
        assert [part.shard for part in store.shards()] == [0, 1, 7]

    async def test_without_reading_the_last_known_map_holds(self, case: FaultyShards) -> None:
        store = await case.orchestrator(range(2))
        await store.admin.add("shard 7", 7, 1.0, ShardState.ACTIVE, keyed=False)
        for number in (0, 1, 7):
            await case.falls(store, number)
        await case.until(lambda: len(store.unavailable()) == 3)
        assert [part.shard for part in store.shards()] == [0, 1, 7]
        await case.heals(store, 7)
        assert shard_of((await case.submit(store, 7)).id) == 7
