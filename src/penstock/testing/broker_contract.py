"""What every broker must do: a pytest class that the test of a backend subclasses, with a fixture and hooks."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.broker.seam import Broker, SignalMessage
from penstock.model.ids import JobId, ShardId, new_job_id
from penstock.model.job import DEFAULT_PRIORITY, BacklogKey, Ticket
from penstock.model.workers import WorkRequest

ZERO = timedelta(0)
BRIEFLY = timedelta(milliseconds=20)
LONG = timedelta(seconds=60)
PROMPTLY = 30.0

RNG = random.Random(7)

Take = asyncio.Task[list[Ticket]]


def ticket(type_name: str = "mail", queue: str | None = None, priority: int = DEFAULT_PRIORITY) -> Ticket:
    """A ticket of a new job."""
    shard = ShardId(RNG.randrange(4))
    return Ticket(shard, new_job_id(1_800_000_000_000, shard, RNG), queue or type_name, type_name, priority)


def tickets(count: int, type_name: str = "mail") -> list[Ticket]:
    return [ticket(type_name) for _ in range(count)]


def wanting(*types: str, queues: Sequence[str] | None = None) -> WorkRequest:
    return WorkRequest(frozenset(types), None if queues is None else frozenset(queues))


def jobs(taken: Sequence[Ticket]) -> list[JobId]:
    return [one.job for one in taken]


async def promptly(take: Coroutine[Any, Any, list[Ticket]] | Take) -> list[Ticket]:
    """The answer of a take that has no reason to wait."""
    async with asyncio.timeout(PROMPTLY):
        return await take


async def receive(listener: AsyncIterator[SignalMessage], count: int) -> list[SignalMessage]:
    """The next rings that a listener hears."""
    async with asyncio.timeout(PROMPTLY):
        return [await anext(listener) for _ in range(count)]


async def ends(listener: AsyncIterator[SignalMessage]) -> bool:
    """True when a listener has nothing more to hear."""
    async with asyncio.timeout(PROMPTLY):
        return await anext(listener, None) is None


class BrokerContract(ABC):
    """The promises of `penstock.broker.seam`, each as a test."""

    @pytest.fixture
    @abstractmethod
    def broker(self) -> Any:
        """An empty broker, closed afterwards."""

    @abstractmethod
    async def lose(self, broker: Any) -> None:
        """Hook: make the broker forget all tickets, as when it is killed or flushed."""

    async def settle_down(self, broker: Any) -> None:
        """Hook: return once all takes that were started wait in the broker. Here: after a few turns of the loop."""
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 - a turn, not a wait

    async def start_take(self, broker: Broker, wanted: WorkRequest, limit: int = 10) -> Take:
        """A take that waits."""
        take = asyncio.ensure_future(broker.take(wanted, limit, LONG))
        await self.settle_down(broker)
        return take

    async def subscribe(self, broker: Any, *bells: str) -> AsyncIterator[SignalMessage]:
        """Hook: a listener that hears what is rung from now on, and has heard nothing yet."""
        listener: AsyncIterator[SignalMessage] = broker.listen(bells)
        return listener

    # -- taking what is there

    async def test_a_ticket_comes_out_as_it_went_in(self, broker: Broker) -> None:
        one = ticket("mail", queue="bulk", priority=3)
        await broker.publish([one])
        assert await broker.take(wanting("mail"), 10, ZERO) == [one]

    async def test_whatever_a_name_holds_its_tickets_and_its_neighbours_are_taken(self, broker: Broker) -> None:
        names = ("mail", "mail\n", "\n1\n", "5:mail/mail", "a/b", "b", "ä\0")
        sent = [ticket(type_name, queue) for type_name in names for queue in names]
        await broker.publish(sent)
        taken = [await broker.take(wanting(*names), 10, ZERO) for _ in range(5)]
        assert {one.job: one for answer in taken for one in answer} == {one.job: one for one in sent}
        assert await broker.depths() == {}

    async def test_each_ticket_is_given_once(self, broker: Broker) -> None:
        sent = tickets(50)
        await broker.publish(sent)
        answers = await asyncio.gather(*(broker.take(wanting("mail"), 10, ZERO) for _ in range(10)))
        taken = [one.job for answer in answers for one in answer]
        assert sorted(taken) == sorted(jobs(sent))

    async def test_never_more_than_the_limit(self, broker: Broker) -> None:
        await broker.publish(tickets(5))
        assert len(await broker.take(wanting("mail"), 2, ZERO)) == 2
        assert len(await broker.take(wanting("mail"), 10, ZERO)) == 3

    async def test_the_oldest_comes_first(self, broker: Broker) -> None:
        sent = tickets(30)
        for one in sent:
            await broker.publish([one])
        assert jobs(await broker.take(wanting("mail"), 20, ZERO)) == jobs(sent[:20])
        assert jobs(await broker.take(wanting("mail"), 20, ZERO)) == jobs(sent[20:])

    async def test_the_highest_priority_comes_first(self, broker: Broker) -> None:
        sent = [ticket(priority=level) for level in (0, 9, 5, 1, 8, 9)]
        await broker.publish(sent)
        taken = [await broker.take(wanting("mail"), 1, ZERO) for _ in sent]
        assert [one.priority for (one,) in taken] == [9, 9, 8, 5, 1, 0]
        assert [taken[0][0].job, taken[1][0].job] == [sent[1].job, sent[5].job]

    async def test_priority_counts_across_types_and_queues(self, broker: Broker) -> None:
        low, high = ticket("mail", "a", priority=1), ticket("report", "b", priority=8)
        await broker.publish([low, high])
        assert await broker.take(wanting("mail", "report"), 2, ZERO) == [high, low]

    async def test_an_empty_broker_answers_with_nothing(self, broker: Broker) -> None:
        assert await broker.take(wanting("mail"), 10, ZERO) == []
        assert await broker.take(wanting("mail"), 10, BRIEFLY) == []

    async def test_publishing_nothing_is_nothing(self, broker: Broker) -> None:
        await broker.publish([])
        assert await broker.take(wanting("mail"), 10, ZERO) == []

    async def test_a_large_batch_passes_whole(self, broker: Broker) -> None:
        sent = tickets(2000)
        await broker.publish(sent)
        taken: list[Ticket] = []
        while answer := await broker.take(wanting("mail"), 500, ZERO):
            taken += answer
        assert jobs(taken) == jobs(sent)

    async def test_a_job_is_not_held_twice(self, broker: Broker) -> None:
        one = ticket()
        await broker.publish([one, one])
        await broker.publish([one])
        assert await broker.depths() == {BacklogKey("mail", "mail"): 1}
        assert await broker.take(wanting("mail"), 10, ZERO) == [one]
        assert await broker.take(wanting("mail"), 10, ZERO) == []

    # -- fair between lanes

    async def test_a_long_lane_does_not_starve_another(self, broker: Broker) -> None:
        await broker.publish([*tickets(1000, "mail"), *tickets(3, "report")])
        taken = [(await broker.take(wanting("mail", "report"), 1, ZERO))[0].type for _ in range(6)]
        assert taken == ["mail", "report"] * 3

    async def test_a_batch_is_shared_between_lanes(self, broker: Broker) -> None:
        for name in ("a", "b", "c"):
            await broker.publish(tickets(100, name))
        taken = [one for _ in range(30) for one in await broker.take(wanting("a", "b", "c"), 4, ZERO)]
        assert {name: sum(one.type == name for one in taken) for name in "abc"} == {"a": 40, "b": 40, "c": 40}

    async def test_a_batch_is_filled_from_the_lanes_that_have_more(self, broker: Broker) -> None:
        await broker.publish([*tickets(100, "a"), *tickets(3, "b")])
        taken = await broker.take(wanting("a", "b"), 50, ZERO)
        assert {name: sum(one.type == name for one in taken) for name in "ab"} == {"a": 47, "b": 3}

    # -- only what is wanted

    async def test_other_types_stay(self, broker: Broker) -> None:
        mail, report = ticket("mail"), ticket("report")
        await broker.publish([mail, report])
        assert await broker.take(wanting("report"), 10, ZERO) == [report]
        assert await broker.take(wanting("mail"), 10, ZERO) == [mail]

    async def test_other_queues_stay(self, broker: Broker) -> None:
        fast, slow = ticket("mail", "fast"), ticket("mail", "slow")
        await broker.publish([slow, fast])
        assert await broker.take(wanting("mail", queues=["fast"]), 10, ZERO) == [fast]
        assert await broker.take(wanting("mail", queues=["other"]), 10, ZERO) == []
        assert await broker.take(wanting("mail"), 10, ZERO) == [slow]

    async def test_tickets_of_paused_queues_stay(self, broker: Broker) -> None:
        fast, slow = ticket("mail", "fast"), ticket("mail", "slow")
        await broker.publish([slow, fast])
        paused = WorkRequest(frozenset({"mail"}), except_queues=frozenset({"slow"}))
        assert await broker.take(paused, 10, ZERO) == [fast]
        take = await self.start_take(broker, paused)
        await broker.publish([ticket("mail", "slow"), fast])
        assert await promptly(take) == [fast]
        assert await broker.depths() == {BacklogKey("slow", "mail"): 2}

    async def test_tickets_below_the_least_priority_of_their_queue_stay(self, broker: Broker) -> None:
        low, plain, other = ticket("mail", "a", priority=4), ticket("mail", "a"), ticket("mail", "b", priority=0)
        await broker.publish([low, plain, other])
        urgent = WorkRequest(frozenset({"mail"}), least_priority={"a": 5})
        assert await broker.take(urgent, 10, ZERO) == [plain, other]
        take = await self.start_take(broker, urgent)
        await broker.publish([ticket("mail", "a", priority=0), plain])
        assert await promptly(take) == [plain]
        assert [one.priority for one in await broker.take(wanting("mail"), 10, ZERO)] == [4, 0]

    async def test_one_who_wants_nothing_gets_nothing(self, broker: Broker) -> None:
        await broker.publish(tickets(3))
        assert await broker.take(wanting(), 10, ZERO) == []
        assert await broker.take(wanting("mail", queues=[]), 10, ZERO) == []

    async def test_a_waiting_taker_is_not_given_what_it_does_not_want(self, broker: Broker) -> None:
        take = await self.start_take(broker, wanting("mail", queues=["fast"]))
        await broker.publish([ticket("mail", "slow"), ticket("report", "fast")])
        await self.settle_down(broker)
        assert not take.done()
        wanted = ticket("mail", "fast")
        await broker.publish([wanted])
        assert await promptly(take) == [wanted]

    # -- waiting

    async def test_a_waiting_taker_is_woken_by_a_publish(self, broker: Broker) -> None:
        take = await self.start_take(broker, wanting("mail"))
        one = ticket()
        await broker.publish([one])
        assert await promptly(take) == [one]

    async def test_every_waiting_taker_is_woken_for_whom_there_is_a_ticket(self, broker: Broker) -> None:
        takes = [await self.start_take(broker, wanting("mail"), limit=1) for _ in range(10)]
        sent = tickets(10)
        await broker.publish(sent)
        answers = [await promptly(take) for take in takes]
        assert sorted(one.job for answer in answers for one in answer) == sorted(jobs(sent))

    async def test_what_the_waiting_do_not_take_is_kept(self, broker: Broker) -> None:
        take = await self.start_take(broker, wanting("mail"), limit=2)
        await broker.publish(tickets(5))
        assert len(await promptly(take)) == 2
        assert len(await broker.take(wanting("mail"), 10, ZERO)) == 3

    async def test_nobody_sleeps_beside_a_ticket_that_others_left(self, broker: Broker) -> None:
        """The first is full before the batch is: the second has to be woken by the same publish."""
        first = await self.start_take(broker, wanting("mail", "report"), limit=1)
        second = await self.start_take(broker, wanting("report"), limit=1)
        await broker.publish([ticket("report"), ticket("report")])
        assert len(await promptly(first)) == 1
        assert len(await promptly(second)) == 1

    async def test_a_ticket_finds_its_taker_behind_many_who_do_not_want_it(self, broker: Broker) -> None:
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
        taken: list[Ticket] = []
        while len(taken) < 3:
            taken += await promptly(broker.take(wanting("mail"), 10, LONG))
        assert jobs(taken) == jobs(sent)

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
        while answer := await broker.take(wanting("a", "b"), 100, BRIEFLY):
            taken += jobs(answer)
        assert sorted(taken) == sorted(jobs(sent))

    # -- depths, epoch

    async def test_depths_tell_what_is_held_by_queue_and_type(self, broker: Broker) -> None:
        mail, report, other = BacklogKey("a", "mail"), BacklogKey("a", "report"), BacklogKey("b", "mail")
        await broker.publish([ticket("mail", "a"), ticket("mail", "a", priority=9)])
        await broker.publish([ticket("report", "a"), ticket("mail", "b")])
        assert await broker.depths() == {mail: 2, report: 1, other: 1}
        await broker.take(wanting("mail", queues=["a"]), 10, ZERO)
        depths = await broker.depths()
        assert (depths.get(mail, 0), depths.get(report, 0), depths.get(other, 0)) == (0, 1, 1)

    async def test_what_was_handed_to_a_waiting_taker_is_not_held(self, broker: Broker) -> None:
        take = await self.start_take(broker, wanting("mail"))
        await broker.publish(tickets(2))
        await promptly(take)
        assert (await broker.depths()).get(BacklogKey("mail", "mail"), 0) == 0

    async def test_what_is_held_is_told_job_by_job(self, broker: Broker) -> None:
        sent = [*tickets(1500, "mail"), *tickets(2, "report")]
        await broker.publish(sent)
        taken = await broker.take(wanting("mail"), 500, ZERO)
        assert await broker.find_held(jobs(sent)) == set(jobs(sent)) - set(jobs(taken))
        assert await broker.find_held([]) == set()
        await self.lose(broker)
        assert await broker.find_held(jobs(sent)) == set()

    async def test_the_epoch_stays_while_nothing_is_lost(self, broker: Broker) -> None:
        before = await broker.epoch()
        await broker.publish(tickets(3))
        await broker.take(wanting("mail"), 10, ZERO)
        assert await broker.epoch() == before

    async def test_a_loss_shows_as_another_epoch(self, broker: Broker) -> None:
        before = await broker.epoch()
        await broker.publish(tickets(3))
        await self.lose(broker)
        assert await broker.epoch() != before
        assert await broker.take(wanting("mail"), 10, ZERO) == []

    async def test_the_same_tickets_may_be_published_again_after_a_loss(self, broker: Broker) -> None:
        sent = tickets(3)
        await broker.publish(sent)
        await self.lose(broker)
        await broker.publish(sent)
        assert jobs(await broker.take(wanting("mail"), 10, ZERO)) == jobs(sent)

    async def test_the_same_ticket_may_be_published_again_after_it_was_taken(self, broker: Broker) -> None:
        one = ticket()
        for _ in range(3):
            await broker.publish([one])
            assert await broker.take(wanting("mail"), 10, ZERO) == [one]

    # -- bells

    async def test_a_ring_is_heard_by_everyone_who_listens(self, broker: Broker) -> None:
        listeners = [await self.subscribe(broker, "door") for _ in range(3)]
        await broker.send_signal("door", b"open")
        assert [await receive(listener, 1) for listener in listeners] == [[SignalMessage("door", b"open")]] * 3

    async def test_rings_are_heard_in_order_and_with_their_messages(self, broker: Broker) -> None:
        listener = await self.subscribe(broker, "door")
        messages = [b"\x00\xff\n", b"", b"two words", b"x" * 10_000]
        for message in messages:
            await broker.send_signal("door", message)
        assert await receive(listener, 4) == [SignalMessage("door", message) for message in messages]

    async def test_only_the_bells_listened_to_are_heard(self, broker: Broker) -> None:
        listener = await self.subscribe(broker, "door", "phone")
        for bell in ("alarm", "door", "doors", "phone"):
            await broker.send_signal(bell)
        assert await receive(listener, 2) == [SignalMessage("door"), SignalMessage("phone")]

    async def test_a_waiting_listener_is_woken(self, broker: Broker) -> None:
        listener = await self.subscribe(broker, "door")
        waiting = asyncio.ensure_future(receive(listener, 1))
        await self.settle_down(broker)
        assert not waiting.done()
        await broker.send_signal("door")
        assert await waiting == [SignalMessage("door")]

    async def test_what_was_rung_before_is_not_heard(self, broker: Broker) -> None:
        await broker.send_signal("door", b"early")
        listener = await self.subscribe(broker, "door")
        await broker.send_signal("door", b"now")
        assert await receive(listener, 1) == [SignalMessage("door", b"now")]

    async def test_a_ring_that_nobody_hears_is_nothing(self, broker: Broker) -> None:
        await broker.send_signal("door", b"hello?")

    async def test_one_who_falls_far_behind_is_told_that_it_missed_something(self, broker: Broker) -> None:
        listener = await self.subscribe(broker, "door")
        for number in range(3000):
            await broker.send_signal("door", b"%d" % number)
        while (await receive(listener, 1))[0].message:
            pass

    async def test_listeners_end_when_the_broker_is_closed(self, broker: Broker) -> None:
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
