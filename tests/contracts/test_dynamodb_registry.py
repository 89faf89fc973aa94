"""Roles, notices, workers and relays in DynamoDB: lost answers, a late index, and more than a transaction holds."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.model.journal import DeliveryRecord, Parked, Position, RelayState, RelayTotals, RelayWrite
from penstock.model.notices import Notice, NoticeChange
from penstock.model.workers import Seen
from penstock.store.dynamodb import DynamoStore
from penstock.store.dynamodb.schema import PLACE
from penstock.store.journal import relay_role
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.registry import worker
from penstock.testing.store_contract.stage import MINUTE, SECOND, StoreStage
from tests.dynamodb import new_store
from tests.dynamodb_faults import Died, Faults, LateIndex, SentTwice

NAME = "orders"


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def store(clock: SimulatedClock) -> AsyncIterator[DynamoStore]:
    async with new_store(clock) as opened:
        yield opened


@pytest.fixture
def stage(store: DynamoStore, clock: SimulatedClock) -> StoreStage:
    return StoreStage(store, clock)


async def test_a_role_that_was_taken_is_recognised_when_the_first_answer_was_lost(store: DynamoStore) -> None:
    with SentTwice(store):
        assert await store.acquire_role("scale", "a", MINUTE) == 1
        assert await store.acquire_role("scale", "b", MINUTE) is None
        assert await store.acquire_role("scale", "a", MINUTE) == 1


async def test_a_change_of_a_notice_is_recognised_when_the_first_answer_was_lost(
    store: DynamoStore, clock: SimulatedClock
) -> None:
    first, second = (Notice("pause", "mail", value, clock.now() + n * SECOND) for n, value in enumerate((b"1", None)))
    with SentTwice(store):
        assert await store.change_notices([NoticeChange(first, None)]) == [True]
        assert await store.change_notices([NoticeChange(second, None)]) == [False]
        assert await store.change_notices([NoticeChange(second, first.told_at)]) == [True]
    assert await store.notices() == [second]


async def test_workers_are_found_by_a_late_index_as_they_are_now(stage: StoreStage, store: DynamoStore) -> None:
    index = LateIndex(store, PLACE)
    gone, stays = worker(stage, "gone"), worker(stage, "stays")
    for one in (gone, stays):
        await store.put_worker(one)
    await index.freeze("000#worker")
    stage.clock.advance(MINUTE * 30)
    await store.delete_worker("gone")
    await store.put_worker(replace(stays, running=7))
    now = stage.clock.now()
    found = await store.workers(Seen(after=now - MINUTE * 60))
    assert [(one.id, one.running, one.seen_at) for one in found] == [("stays", 7, now)]
    assert await store.prune_workers(now - MINUTE, 9) == []


async def test_a_worker_that_reports_just_before_it_is_forgotten_stays(stage: StoreStage, store: DynamoStore) -> None:
    reporter = worker(stage, "w1")
    await store.put_worker(reporter)
    stage.clock.advance(MINUTE)

    async def report() -> None:
        await store.put_worker(reporter)

    with Faults(store).before(1, report):
        assert await store.prune_workers(stage.clock.now(), 9) == []
    assert [one.id for one in await store.workers()] == ["w1"]


async def test_a_report_costs_one_unit_of_writing_and_every_ten_minutes_two_more(stage: StoreStage) -> None:
    store, reporter = stage.store, worker(stage, "w1")
    assert isinstance(store, DynamoStore)
    await store.put_worker(reporter)
    costs = []
    for _ in range(12):
        stage.clock.advance(MINUTE)
        store.table.bill = {}
        await store.put_worker(reporter)
        costs.append(sum(store.table.bill.values()))
    assert sorted(costs) == [1] * 11 + [3]


class Relay:
    """The holder of a relay's role."""

    def __init__(self, store: DynamoStore, stage: StoreStage, fence: int) -> None:
        self.store, self.stage, self.fence = store, stage, fence

    def events(self, count: int) -> list[Parked]:
        now = self.stage.clock.now()
        return [Parked(job=self.stage.new_id(), version=1, event=b"{}", due_at=now) for _ in range(count)]

    def failures(self, count: int) -> Sequence[DeliveryRecord]:
        now = self.stage.clock.now()
        return [DeliveryRecord(at=now, delivered=False, first=f"e{n}", last=f"e{n}", events=1) for n in range(count)]

    async def save(self, number: int, **written: Any) -> bool:
        state = RelayState(position=Position(number))
        return await self.store.save_relay(NAME, self.fence, RelayWrite(state=state, **written))

    async def totals(self) -> RelayTotals:
        return await self.store.relay_totals(NAME)


@pytest.fixture
async def relay(store: DynamoStore, stage: StoreStage) -> Relay:
    fence = await store.acquire_role(relay_role(NAME), "me", MINUTE)
    assert fence is not None
    return Relay(store, stage, fence)


async def test_a_round_of_more_events_than_a_transaction_holds_is_stored_whole(relay: Relay) -> None:
    events = relay.events(150)
    assert await relay.save(1, parked=events, log=relay.failures(60))
    assert len(await relay.store.read_parked_of(NAME, [one.job for one in events])) == 150
    unparked = [(one.job, one.version) for one in events[:120]]
    assert await relay.save(2, unparked=unparked)
    totals = await relay.totals()
    assert (totals.state.position, totals.waiting, totals.failed) == (Position(2), 30, 60)
    assert len(await relay.store.deliveries(NAME, None, 99)) == 60


async def test_a_relay_that_dies_within_a_large_round_keeps_its_position_until_all_is_parked(relay: Relay) -> None:
    faults, events = Faults(relay.store), relay.events(150)
    with faults.die(2, after=False), pytest.raises(Died):
        await relay.save(1, parked=events, log=relay.failures(1))
    assert (await relay.totals()).state.position is None
    assert await relay.save(1, parked=events, log=relay.failures(1))
    totals = await relay.totals()
    assert (totals.state.position, totals.waiting, totals.failed) == (Position(1), 150, 1)


async def test_a_relay_that_is_replaced_within_a_large_round_does_not_advance(relay: Relay) -> None:
    async def replace_it() -> None:
        relay.stage.clock.advance(MINUTE)
        assert await relay.store.acquire_role(relay_role(NAME), "another", MINUTE) == relay.fence + 1

    with Faults(relay.store).before(2, replace_it):
        assert not await relay.save(9, parked=relay.events(150), log=relay.failures(1))
    totals = await relay.totals()
    assert (totals.state.position, totals.failed) == (None, 0)


async def test_a_write_of_a_relay_is_stored_once_when_its_answer_was_lost(relay: Relay) -> None:
    with SentTwice(relay.store):
        assert await relay.save(1, log=relay.failures(2))
        assert await relay.save(2, log=relay.failures(1))
    totals = await relay.totals()
    assert (totals.state.position, totals.failed) == (Position(2), 3)
