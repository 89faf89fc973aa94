"""The state of relays: written by the holder of the role alone, and never back."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.model.ids import JobId
from penstock.model.journal import (
    DeliveryRecord,
    EventRetention,
    Parked,
    ParkedState,
    Position,
    RelayState,
    RelayTotals,
    RelayWrite,
)
from penstock.store.journal import relay_role
from penstock.store.seam import Shard
from penstock.testing.store_contract.stage import MINUTE, SECOND, OnStage, StoreStage

NAME = "orders"
OTHER = "others"


class RelayStage:
    """A relay of one shard, which holds its role."""

    def __init__(self, stage: StoreStage, fence: int) -> None:
        self.shard: Shard = stage.store.shards()[0]
        self.clock = stage.clock
        self.fence = fence
        self.jobs: list[JobId] = sorted(stage.new_id() for _ in range(3))

    async def save(self, *, position: Position | None = None, fence: int | None = None, **written: Any) -> bool:
        state = RelayState(position=position)
        return await self.shard.save_relay(NAME, fence or self.fence, RelayWrite(state=state, **written))

    def park(self, job: int, version: int, **fields: Any) -> Parked:
        return Parked(job=self.jobs[job], version=version, event=b"{}", **fields)

    async def read_waiting(self, **where: Any) -> list[Parked]:
        return await self.shard.read_parked(NAME, ParkedState.WAITING, 99, **where)

    def success(self, first: str, last: str, events: int, **fields: Any) -> DeliveryRecord:
        at = self.clock.now()
        return DeliveryRecord(at=at, delivered=True, first=first, last=last, events=events, status=200, **fields)

    def failure(self, event: str, **fields: Any) -> DeliveryRecord:
        at = self.clock.now()
        return DeliveryRecord(at=at, delivered=False, first=event, last=event, events=1, status=500, **fields)

    async def log(self) -> Sequence[DeliveryRecord]:
        return await self.shard.deliveries(NAME, None, 99)


class RelayContract(OnStage):
    @pytest.fixture
    async def relay(self, stage: StoreStage) -> RelayStage:
        fence = await stage.store.shards()[0].acquire_role(relay_role(NAME), "me", MINUTE)
        assert fence is not None
        return RelayStage(stage, fence)

    async def test_a_new_relay_has_no_position(self, relay: RelayStage) -> None:
        assert await relay.shard.relay_state(NAME) == RelayState()
        assert await relay.shard.relay_totals(NAME) == RelayTotals(state=RelayState())

    async def test_the_state_is_kept(self, relay: RelayStage) -> None:
        state = RelayState(position=Position(7, 3), failures=5, retry_at=relay.clock.now() + MINUTE)
        assert await relay.shard.save_relay(NAME, relay.fence, RelayWrite(state=state))
        assert await relay.shard.relay_state(NAME) == state
        assert await relay.shard.relay_state(OTHER) == RelayState()

    async def test_a_position_never_goes_back(self, relay: RelayStage) -> None:
        for position in (Position(7, 3), Position(7, 2), Position(6, 9), None):
            assert await relay.save(position=position)
            assert (await relay.shard.relay_state(NAME)).position == Position(7, 3)
        for position in (Position(7, 4), Position(8, 0)):
            assert await relay.save(position=position)
            assert (await relay.shard.relay_state(NAME)).position == position

    async def test_a_relay_that_was_replaced_writes_nothing(self, relay: RelayStage) -> None:
        await relay.save(position=Position(1))
        relay.clock.advance(MINUTE)
        fence = await relay.shard.acquire_role(relay_role(NAME), "another", MINUTE)
        assert fence is not None
        for late in (relay.fence, fence + 1):
            assert not await relay.save(
                position=Position(9), fence=late, parked=[relay.park(0, 1)], log=[relay.failure("e")]
            )
        assert await relay.shard.relay_totals(NAME) == RelayTotals(state=RelayState(position=Position(1)))
        assert (await relay.read_waiting(), await relay.log()) == ([], [])
        assert await relay.save(position=Position(2), fence=fence)

    async def test_the_role_of_another_subscription_is_of_no_use(self, relay: RelayStage) -> None:
        write = RelayWrite(state=RelayState(position=Position(1)))
        assert not await relay.shard.save_relay(OTHER, relay.fence, write)
        assert await relay.shard.relay_state(OTHER) == RelayState()

    async def test_parked_events_are_given_by_time_job_and_version(self, relay: RelayStage) -> None:
        now = relay.clock.now()
        later, soon = relay.park(0, 4, due_at=now + SECOND * 2), relay.park(1, 2, due_at=now + SECOND)
        behind = [relay.park(0, 5), relay.park(0, 6), relay.park(1, 3)]
        dead = relay.park(2, 1, state=ParkedState.DEAD, attempts=10, error="410")
        await relay.save(parked=[*behind, later, dead, soon])
        assert await relay.read_waiting() == [soon, later, *behind]
        assert await relay.read_waiting(due_before=now + SECOND) == []
        assert await relay.read_waiting(due_before=now + SECOND * 2) == [soon]
        assert await relay.read_waiting(due_before=now + MINUTE) == [soon, later]
        assert await relay.shard.read_parked(NAME, ParkedState.WAITING, 1) == [soon]
        assert await relay.shard.read_parked(NAME, ParkedState.DEAD, 9) == [dead]
        assert await relay.shard.read_parked(OTHER, ParkedState.WAITING, 9) == []
        totals = await relay.shard.relay_totals(NAME)
        assert (totals.waiting, totals.dead) == (5, 1)

    async def test_the_waiting_events_of_jobs(self, relay: RelayStage) -> None:
        events = [relay.park(1, 2), relay.park(0, 5), relay.park(0, 4, due_at=relay.clock.now())]
        await relay.save(parked=[*events, relay.park(2, 1), relay.park(0, 3, state=ParkedState.DEAD)])
        assert await relay.shard.read_parked_of(NAME, relay.jobs[:2]) == [events[2], events[1], events[0]]
        assert await relay.shard.read_parked_of(NAME, []) == []
        assert await relay.shard.read_parked_of(OTHER, relay.jobs) == []

    async def test_an_event_that_is_parked_again_has_the_new_values(self, relay: RelayStage) -> None:
        await relay.save(parked=[relay.park(0, 1, due_at=relay.clock.now()), relay.park(1, 1)])
        again = relay.park(0, 1, state=ParkedState.DEAD, attempts=10, error="gone")
        await relay.save(parked=[again], unparked=[(relay.jobs[1], 1), (relay.jobs[1], 2)])
        assert await relay.read_waiting() == []
        assert await relay.shard.read_parked(NAME, ParkedState.DEAD, 9) == [again]

    async def test_a_user_makes_events_due(self, relay: RelayStage) -> None:
        dead = relay.park(0, 1, state=ParkedState.DEAD, attempts=10, error="gone")
        await relay.save(parked=[dead])
        again, other = relay.park(0, 1), relay.park(1, 7, due_at=relay.clock.now() + SECOND)
        await relay.shard.park_again(NAME, [other, again])
        assert await relay.shard.read_parked(NAME, ParkedState.DEAD, 9) == []
        assert await relay.read_waiting() == [relay.park(0, 1, due_at=relay.clock.now()), other]

    async def test_successes_in_a_row_are_one_record(self, relay: RelayStage) -> None:
        await relay.save(log=[relay.success("a", "c", 3)])
        relay.clock.advance(SECOND)
        await relay.save(log=[relay.success("d", "d", 1), relay.failure("e", detail="no"), relay.success("f", "g", 2)])
        relay.clock.advance(SECOND)
        await relay.save(log=[relay.success("h", "h", 1, took=SECOND)])
        newest, failed, oldest = await relay.log()
        assert newest == DeliveryRecord(
            at=relay.clock.now(), delivered=True, first="f", last="h", events=3, status=200, took=SECOND
        )
        assert (failed.delivered, failed.first, failed.detail, failed.status) == (False, "e", "no", 500)
        assert (oldest.first, oldest.last, oldest.events, oldest.at) == ("a", "d", 4, relay.clock.now() - SECOND)
        totals = await relay.shard.relay_totals(NAME)
        assert (totals.delivered, totals.failed) == (7, 1)

    async def test_the_log_is_read_page_by_page(self, relay: RelayStage) -> None:
        for name in "abcd":
            await relay.save(log=[relay.failure(name)])
            relay.clock.advance(SECOND)
        now = relay.clock.now()
        first = await relay.shard.deliveries(NAME, None, 2)
        rest = await relay.shard.deliveries(NAME, first[-1].at, 9)
        assert [one.first for one in (*first, *rest)] == ["d", "c", "b", "a"]
        assert await relay.shard.deliveries(NAME, now - SECOND * 4, 9) == []
        assert await relay.shard.deliveries(OTHER, None, 9) == []

    async def test_old_records_of_the_log_go(self, relay: RelayStage) -> None:
        await relay.save(log=[relay.failure("a")])
        relay.clock.advance(MINUTE)
        await relay.save(log=[relay.failure("b")])
        await relay.shard.prune_journal(EventRetention(events=timedelta(seconds=30)), 99)
        assert [one.first for one in await relay.log()] == ["b"]

    async def test_a_dropped_relay_is_forgotten(self, relay: RelayStage) -> None:
        await relay.save(position=Position(3), parked=[relay.park(0, 1)], log=[relay.failure("a")])
        await relay.shard.park_again(OTHER, [relay.park(0, 1)])
        await relay.shard.drop_relay(NAME)
        assert await relay.shard.relay_totals(NAME) == RelayTotals(state=RelayState())
        assert (await relay.read_waiting(), await relay.log()) == ([], [])
        assert len(await relay.shard.read_parked(OTHER, ParkedState.WAITING, 9)) == 1
