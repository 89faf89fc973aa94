"""What every broker promises to callers that wait: for tickets, and for signals."""

import asyncio
import random

import pytest

from penstock.broker.seam import Broker, SignalMessage
from penstock.model.job import Ticket
from penstock.testing.broker_stage import (
    BRIEFLY,
    LONG,
    BrokerStage,
    Take,
    ends,
    jobs,
    promptly,
    receive,
    same_tickets,
    take_all,
    ticket,
    tickets,
    wanting,
)


class BrokerWaitContract(BrokerStage):
    """The promises about waiting calls of `take`, cancelled ones, subscribers, and a close."""

    # -- waiting

    async def test_a_waiting_taker_is_woken_by_a_publish(self, broker: Broker) -> None:
        take = await self.start_take(broker, wanting("mail"))
        one = ticket()
        await broker.publish([one])
        assert await promptly(take) == [one]

    async def test_every_waiting_taker_is_woken_for_which_there_is_a_ticket(self, broker: Broker) -> None:
        takes = [await self.start_take(broker, wanting("mail"), limit=1) for _ in range(10)]
        sent = tickets(10)
        await broker.publish(sent)
        answers = [await promptly(take) for take in takes]
        assert sorted(one.job for answer in answers for one in answer) == sorted(jobs(sent))

    async def test_what_the_waiting_do_not_take_is_kept(self, broker: Broker) -> None:
        """Those that were on their way to a call which had enough by then come back a moment later."""
        take, sent = await self.start_take(broker, wanting("mail"), limit=2), tickets(5)
        await broker.publish(sent)
        taken = await promptly(take)
        assert len(taken) == 2
        taken += await take_all(broker, wanting("mail"), 3)
        assert sorted(jobs(taken)) == sorted(jobs(sent))

    async def test_no_take_waits_while_there_is_a_ticket_that_others_left(self, broker: Broker) -> None:
        """The first is full before the batch is: the second has to be woken by the same publish."""
        first = await self.start_take(broker, wanting("mail", "report"), limit=1)
        second = await self.start_take(broker, wanting("report"), limit=1)
        await broker.publish([ticket("report"), ticket("report")])
        assert len(await promptly(first)) == 1
        assert len(await promptly(second)) == 1

    async def test_a_ticket_finds_its_taker_behind_many_that_do_not_want_it(self, broker: Broker) -> None:
        others = [await self.start_take(broker, wanting("mail", queues=[f"q{number}"])) for number in range(40)]
        take = await self.start_take(broker, wanting("mail"))
        one = ticket()
        await broker.publish([one])
        assert await promptly(take) == [one]
        assert not any(other.done() for other in others)
        await broker.close()
        assert [await promptly(other) for other in others] == [[]] * 40

    # -- taking none

    async def test_a_taker_cancelled_while_it_waits_takes_none(self, broker: Broker) -> None:
        take = await self.start_take(broker, wanting("mail"))
        take.cancel()
        one = ticket()
        await broker.publish([one])
        with pytest.raises(asyncio.CancelledError):
            await take
        assert await promptly(broker.take(wanting("mail"), 10, LONG)) == [one]

    async def test_a_taker_cancelled_as_it_is_given_tickets_takes_none(self, broker: Broker) -> None:
        take = await self.start_take(broker, wanting("mail"))
        sent = tickets(3)
        await broker.publish(sent)
        if not take.cancel():
            pytest.skip("this broker had already answered")
        with pytest.raises(asyncio.CancelledError):
            await take
        assert same_tickets(broker, await take_all(broker, wanting("mail"), 3), sent)

    async def test_tickets_of_a_cancelled_taker_wake_another(self, broker: Broker) -> None:
        first = await self.start_take(broker, wanting("mail"))
        second = await self.start_take(broker, wanting("mail"))
        one = ticket()
        await broker.publish([one])
        if first.cancel():
            assert await promptly(second) == [one]
        else:
            second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    @pytest.mark.parametrize("seed", range(20))
    async def test_a_hundred_takers_cancelled_at_random_lose_nothing(self, broker: Broker, seed: int) -> None:
        rng = random.Random(seed)
        sent: list[Ticket] = []
        takes: list[Take] = []
        for _ in range(100):
            limit = rng.randint(1, 4)
            takes.append(asyncio.ensure_future(broker.take(wanting(*rng.sample(["a", "b"], 2)), limit, LONG)))
            if rng.random() < 0.6:
                batch = [ticket(rng.choice("ab"), priority=rng.randrange(10)) for _ in range(rng.randint(1, 5))]
                sent += batch
                await broker.publish(batch)
            if rng.random() < 0.5:
                rng.choice(takes).cancel()
            if rng.random() < 0.3:
                await self.settle_down(broker)
        for take in takes:
            take.cancel()
        answers = await asyncio.gather(*takes, return_exceptions=True)
        taken = [one.job for answer in answers if isinstance(answer, list) for one in answer]
        taken += jobs(await take_all(broker, wanting("a", "b"), len(sent) - len(taken)))
        assert sorted(taken) == sorted(jobs(sent))
        assert await broker.take(wanting("a", "b"), 100, BRIEFLY) == []

    # -- signals

    async def test_every_subscriber_receives_a_signal(self, broker: Broker) -> None:
        listeners = [await self.subscribe(broker, "door") for _ in range(3)]
        await broker.send_signal("door", b"open")
        assert [await receive(listener, 1) for listener in listeners] == [[SignalMessage("door", b"open")]] * 3

    async def test_signals_arrive_in_order_and_with_their_messages(self, broker: Broker) -> None:
        listener = await self.subscribe(broker, "door")
        messages = [b"\x00\xff\n", b"", b"two words", b"x" * 10_000]
        for message in messages:
            await broker.send_signal("door", message)
        assert await receive(listener, 4) == [SignalMessage("door", message) for message in messages]

    async def test_only_subscribed_signals_arrive(self, broker: Broker) -> None:
        listener = await self.subscribe(broker, "door", "phone")
        for signal in ("alarm", "door", "doors", "phone"):
            await broker.send_signal(signal)
        assert await receive(listener, 2) == [SignalMessage("door"), SignalMessage("phone")]

    async def test_a_waiting_subscriber_is_woken(self, broker: Broker) -> None:
        listener = await self.subscribe(broker, "door")
        waiting = asyncio.ensure_future(receive(listener, 1))
        await self.settle_down(broker)
        assert not waiting.done()
        await broker.send_signal("door")
        assert await waiting == [SignalMessage("door")]

    async def test_what_was_sent_before_does_not_arrive(self, broker: Broker) -> None:
        await broker.send_signal("door", b"early")
        listener = await self.subscribe(broker, "door")
        await broker.send_signal("door", b"now")
        assert await receive(listener, 1) == [SignalMessage("door", b"now")]

    async def test_a_signal_without_a_subscriber_is_nothing(self, broker: Broker) -> None:
        await broker.send_signal("door", b"hello?")

    async def test_a_subscriber_that_falls_far_behind_learns_that_it_missed_some(self, broker: Broker) -> None:
        listener = await self.subscribe(broker, "door")
        for number in range(3000):
            await broker.send_signal("door", b"%d" % number)
        while (await receive(listener, 1))[0].message:
            pass

    async def test_subscribers_end_when_the_broker_is_closed(self, broker: Broker) -> None:
        quiet, busy = await self.subscribe(broker, "door"), await self.subscribe(broker, "phone")
        waiting = asyncio.ensure_future(ends(busy))
        await self.settle_down(broker)
        await broker.close()
        assert await waiting
        assert await ends(quiet)
        assert await ends(quiet)
        assert await ends(broker.listen(["door"]))

    # -- close

    async def test_a_closed_broker_gives_nothing(self, broker: Broker) -> None:
        await broker.publish(tickets(2))
        await broker.close()
        await broker.publish(tickets(2))
        assert await promptly(broker.take(wanting("mail"), 10, LONG)) == []
        await broker.close()

    async def test_close_answers_the_waiting_with_nothing(self, broker: Broker) -> None:
        takes = [await self.start_take(broker, wanting("mail", "report")) for _ in range(3)]
        await broker.close()
        assert [await promptly(take) for take in takes] == [[], [], []]
