"""Notices, workers, and whether the shard is well."""

import asyncio

import pytest
from msgspec.structs import replace

from penstock.model.errors import Unavailable
from penstock.model.notices import Notice, NoticeChange
from penstock.model.workers import DrainRequest, Seen, Worker, WorkerState
from penstock.testing.store_contract.stage import MINUTE, SECOND, TICKET, OnStage, StoreStage

KEYS_AT_ONE_INSTANT = (("a", b"1"), ("a", b"2"), ("a", None))


def worker(stage: StoreStage, name: str) -> Worker:
    return Worker(
        id=name, host="h", pid=7, version="1", types=("mail",), capacity=4, running=2, started_at=stage.clock.now()
    )


class RegistryContract(OnStage):
    async def test_of_two_notices_about_the_same_the_newest_counts(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        first, second = Notice("type", "mail", b"1", now), Notice("type", "mail", b"2", now + SECOND)
        other = Notice("pause", "mail", b"true", now)
        await stage.store.put_notices([first, other])
        assert await stage.store.notices() == [other, first]
        await stage.store.put_notices([second])
        await stage.store.put_notices([first])
        assert await stage.store.notices() == [other, second]

    async def test_a_change_is_refused_when_something_newer_was_told_than_it_was_decided_on(
        self, stage: StoreStage
    ) -> None:
        now = stage.clock.now()
        first, second, third = (
            Notice("pause", "mail", value, now + n * SECOND) for n, value in enumerate((b"1", b"2", None))
        )
        assert await stage.store.change_notices([NoticeChange(first, None)]) == [True]
        assert await stage.store.change_notices([NoticeChange(third, None)]) == [False]
        assert await stage.store.change_notices([NoticeChange(second, first.told_at)]) == [True]
        assert await stage.store.change_notices([NoticeChange(third, first.told_at)]) == [False]
        assert await stage.store.notices() == [second]
        assert await stage.store.change_notices([NoticeChange(third, second.told_at)]) == [True]
        assert await stage.store.notices() == [third]

    async def test_each_change_of_a_batch_is_kept_or_refused_by_itself(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        known, new = Notice("type", "a", b"1", now), Notice("type", "b", b"1", now)
        await stage.store.put_notices([known])
        late = NoticeChange(Notice("type", "a", b"2", now + SECOND), now - SECOND)
        assert await stage.store.change_notices([late, NoticeChange(new, None)]) == [False, True]
        assert await stage.store.notices() == [known, new]

    async def test_of_changes_decided_on_the_same_reading_one_is_kept(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        await stage.store.put_notices([Notice("fleet", "mail", b"0", now)])
        rivals = [Notice("fleet", "mail", b"%d" % n, now + n * SECOND) for n in range(1, 6)]
        kept = await asyncio.gather(*(stage.store.change_notices([NoticeChange(one, now)]) for one in rivals))
        winners = [one for one, (was_kept,) in zip(rivals, kept, strict=True) if was_kept]
        assert len(winners) <= 1
        (found,) = await stage.store.notices()
        # Shards that are asked at the same time may have kept different ones: then no rival has won.
        assert found in winners if winners or len(stage.store.shards()) == 1 else found in rivals

    async def test_of_two_notices_told_at_one_instant_all_shards_keep_the_same(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        one, another, withdrawn = (Notice("key", name, value, now) for name, value in KEYS_AT_ONE_INSTANT)
        await stage.store.put_notices([another, one])
        await stage.store.put_notices([withdrawn])
        assert await stage.store.notices() == [another]

    async def test_a_withdrawn_notice_stays_known_as_withdrawn(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        withdrawn = Notice("pause", "mail", None, now + SECOND)
        await stage.store.put_notices([withdrawn])
        await stage.store.put_notices([Notice("pause", "mail", b"true", now)])
        assert await stage.store.notices() == [withdrawn]

    async def test_a_notice_of_a_kind_nobody_knows_yet_is_kept(self, stage: StoreStage) -> None:
        later = Notice("of a later version", "x", bytes(range(256)), stage.clock.now())
        await stage.store.put_notices([later])
        assert await stage.store.notices() == [later]

    async def test_a_role_has_one_holder_until_its_time_has_passed(self, stage: StoreStage) -> None:
        assert await stage.store.acquire_role("scale", "a", MINUTE) == 1
        assert await stage.store.acquire_role("scale", "b", MINUTE) is None
        stage.clock.advance(MINUTE - SECOND)
        assert await stage.store.acquire_role("scale", "a", MINUTE) == 1
        stage.clock.advance(MINUTE - SECOND)
        assert await stage.store.acquire_role("scale", "b", MINUTE) is None
        stage.clock.advance(SECOND)
        assert await stage.store.acquire_role("scale", "b", MINUTE) == 2
        assert await stage.store.acquire_role("scale", "a", MINUTE) is None
        assert await stage.store.acquire_role("other", "a", MINUTE) == 1

    async def test_a_role_that_is_given_up_passes_on_at_once(self, stage: StoreStage) -> None:
        await stage.store.acquire_role("scale", "a", MINUTE)
        await stage.store.release_role("scale", "b")
        assert await stage.store.acquire_role("scale", "b", MINUTE) is None
        await stage.store.release_role("scale", "a")
        assert await stage.store.acquire_role("scale", "b", MINUTE) == 2

    async def test_workers_are_seen_by_the_shards_clock(self, stage: StoreStage) -> None:
        second, first = worker(stage, "w2"), worker(stage, "w1")
        await stage.store.put_worker(second)
        stage.clock.advance(MINUTE)
        await stage.store.put_worker(first)
        now = stage.clock.now()
        assert await stage.store.workers() == [replace(first, seen_at=now), replace(second, seen_at=now - MINUTE)]
        draining = replace(second, state=WorkerState.DRAINING, running=0)
        await stage.store.put_worker(draining)
        await stage.store.delete_worker("w1")
        assert await stage.store.workers() == [replace(draining, seen_at=now)]

    async def test_of_workers_only_those_seen_in_a_span_are_read_and_of_them_the_last(self, stage: StoreStage) -> None:
        seen = {}
        for name in ("w3", "w1", "w2", "w0"):
            await stage.store.put_worker(worker(stage, name))
            seen[name] = stage.clock.now()
            stage.clock.advance(MINUTE)

        async def names(span: Seen, limit: int | None = None) -> list[str]:
            return [one.id for one in await stage.store.workers(span, limit)]

        assert await names(Seen(after=seen["w1"])) == ["w0", "w2"]
        assert await names(Seen(until=seen["w1"])) == ["w1", "w3"]
        assert await names(Seen(seen["w3"], seen["w2"])) == ["w1", "w2"]
        assert await names(Seen(), 3) == ["w0", "w1", "w2"]
        assert await names(Seen(until=seen["w2"]), 1) == ["w2"]

    async def test_workers_not_seen_since_an_instant_are_forgotten_the_longest_silent_first(
        self, stage: StoreStage
    ) -> None:
        for name in ("w2", "w1", "w0"):
            await stage.store.put_worker(worker(stage, name))
            stage.clock.advance(MINUTE)
        now = stage.clock.now()
        assert [one.id for one in await stage.store.prune_workers(now - MINUTE, 1)] == ["w2"]
        await stage.store.put_worker(worker(stage, "w1"))
        assert await stage.store.prune_workers(now - MINUTE, 10) == []
        assert [one.id for one in await stage.store.prune_workers(now, 10)] == ["w0"]
        assert [one.id for one in await stage.store.workers()] == ["w1"]

    async def test_a_worker_is_told_that_it_is_asked_to_drain_for_as_long_as_its_row_is_there(
        self, stage: StoreStage
    ) -> None:
        first, second = worker(stage, "w1"), worker(stage, "w2")
        assert await stage.store.put_worker(first) is None
        assert await stage.store.put_worker(second) is None
        assert await stage.store.ask_to_drain(["w2", "nobody"]) == ["w2"]
        assert await stage.store.put_worker(first) is None
        for _ in range(2):
            assert await stage.store.put_worker(second) == DrainRequest(None)
            stage.clock.advance(MINUTE)
        assert [one.id for one in await stage.store.workers()] == ["w1", "w2"]
        await stage.store.delete_worker("w2")
        assert await stage.store.ask_to_drain(["w2"]) == []
        assert await stage.store.put_worker(second) is None

    async def test_of_several_requests_to_drain_the_earliest_end_counts_by_the_shards_clock(
        self, stage: StoreStage
    ) -> None:
        asked = worker(stage, "w1")
        await stage.store.put_worker(asked)
        for patience, left in ((None, None), (MINUTE * 5, 300.0), (None, 300.0), (MINUTE, 60.0), (MINUTE * 2, 60.0)):
            assert await stage.store.ask_to_drain(["w1"], patience) == ["w1"]
            assert await stage.store.put_worker(asked) == DrainRequest(left)
        stage.clock.advance(SECOND * 15)
        assert await stage.store.put_worker(asked) == DrainRequest(45.0)
        stage.clock.advance(MINUTE)
        assert await stage.store.put_worker(asked) == DrainRequest(0.0)

    async def test_the_shard_tells_its_time(self, stage: StoreStage) -> None:
        stage.clock.advance(MINUTE)
        assert await stage.store.now() == stage.clock.now()

    async def test_a_healthy_shard_can_be_probed(self, stage: StoreStage) -> None:
        await stage.store.probe()

    async def test_a_closed_shard_is_unavailable(self, stage: StoreStage) -> None:
        late = stage.new()
        await stage.store.close()
        for attempt in (stage.store.probe(), stage.store.submit([late], TICKET), stage.store.counts()):
            with pytest.raises(Unavailable):
                await attempt
