"""The in-process broker keeps the contract, and the promises of its own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.memory import MemoryBroker, TicketQueues
from penstock.model.ids import JobId, ShardId
from penstock.model.job import Ticket
from penstock.testing.broker_contract import BrokerContract
from penstock.testing.broker_stage import (
    LONG,
    ZERO,
    jobs,
    promptly,
    ticket,
    tickets,
    wanting,
)


class TestMemoryBroker(BrokerContract):
    @pytest.fixture
    async def broker(self) -> AsyncIterator[MemoryBroker]:
        broker = MemoryBroker()
        yield broker
        await broker.close()

    async def lose(self, broker: Any) -> None:
        broker.lose()

    async def test_a_ticket_put_back_is_not_held_beside_its_double(self, broker: MemoryBroker) -> None:
        take = await self.start_take(broker, wanting("mail"))
        one = ticket()
        await broker.publish([one])
        await broker.publish([one])
        take.cancel()
        await asyncio.wait({take})
        assert await broker.take(wanting("mail"), 10, ZERO) == [one]

    async def test_a_ticket_put_back_keeps_its_place(self, broker: MemoryBroker) -> None:
        take = await self.start_take(broker, wanting("mail"), limit=2)
        sent = tickets(4)
        await broker.publish(sent)
        take.cancel()
        await asyncio.wait({take})
        assert await broker.take(wanting("mail"), 10, ZERO) == sent
        assert await broker.depths() == {}

    async def test_those_who_came_first_are_served_first(self, broker: MemoryBroker) -> None:
        takes = [await self.start_take(broker, wanting("mail"), limit=1) for _ in range(5)]
        for take in takes:
            one = ticket()
            await broker.publish([one])
            assert await promptly(take) == [one]

    async def test_a_waiting_taker_gets_the_whole_batch_best_first(self, broker: MemoryBroker) -> None:
        take = await self.start_take(broker, wanting("mail"))
        low, high = ticket(priority=1), ticket(priority=9)
        await broker.publish([low, high])
        assert await promptly(take) == [high, low]

    async def test_a_taker_that_finds_tickets_does_not_give_up_its_turn(self, broker: MemoryBroker) -> None:
        await broker.publish(tickets(2))
        take = broker.take(wanting("mail"), 10, LONG)
        with pytest.raises(StopIteration) as answered:
            take.send(None)
        assert len(answered.value.value) == 2

    async def test_a_closed_broker_holds_nothing(self, broker: MemoryBroker) -> None:
        await broker.close()
        await broker.publish(tickets(2))
        assert await broker.depths() == {}

    async def test_takers_that_left_leave_no_trace(self, broker: MemoryBroker) -> None:
        take = await self.start_take(broker, wanting("mail", "report"))
        take.cancel()
        await asyncio.wait({take})
        assert not broker._waiters  # noqa: SLF001 - a leak shows nowhere else


steps = st.lists(
    st.one_of(
        st.builds(
            lambda number, name, priority: Ticket(ShardId(0), JobId(str(number)), name, name, priority),
            st.integers(0, 30),
            st.sampled_from("abc"),
            st.integers(0, 9),
        ),
        st.tuples(st.frozensets(st.sampled_from("abc")), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(steps)
def test_ticket_queues_agree_with_a_plain_list(steps: list[Ticket | tuple[frozenset[str], int]]) -> None:
    """Whatever is put in and taken: nothing is lost or doubled, the best priority goes first, and depths agree."""
    queues, model = TicketQueues(), list[Ticket]()
    for step in steps:
        if isinstance(step, Ticket):
            known = step.job in jobs(model)
            assert queues.append([step]) == ([] if known else [step])
            model += [] if known else [step]
        else:
            types, limit = step
            wanted = [one for one in model if one.type in types]
            taken = queues.take(wanting(*types), limit)
            best = sorted((one.priority for one in wanted), reverse=True)[:limit]
            assert [one.priority for one in taken] == best
            for one in taken:
                same = [other for other in model if (other.type, other.priority) == (one.type, one.priority)]
                assert one == same[0]
                model.remove(one)
        assert queues.depths == Counter(one.backlog_key for one in model)
