"""What every broker must do: a pytest class that the test of a backend subclasses, with a fixture and hooks."""

import asyncio

from penstock.broker.seam import Broker
from penstock.model.job import BacklogKey, Ticket
from penstock.model.workers import WorkRequest
from penstock.testing.broker_stage import (
    BRIEFLY,
    LONG,
    ZERO,
    expect_depths,
    jobs,
    promptly,
    require,
    same_tickets,
    take_all,
    ticket,
    tickets,
    wanting,
)
from penstock.testing.broker_waits import BrokerWaitContract


class BrokerContract(BrokerWaitContract):
    """The promises of `penstock.broker.seam`, each as a test."""

    # -- taking what is there

    async def test_a_ticket_comes_out_as_it_went_in(self, broker: Broker) -> None:
        one = ticket("mail", queue="bulk", priority=3)
        await broker.publish([one])
        assert await broker.take(wanting("mail"), 10, ZERO) == [one]

    async def test_whatever_a_name_holds_its_tickets_and_its_neighbours_are_taken(self, broker: Broker) -> None:
        names = ("mail", "mail\n", "\n1\n", "5:mail/mail", "a/b", "b", "ä\0")
        sent = [ticket(type_name, queue) for type_name in names for queue in names]
        await broker.publish(sent)
        taken = await take_all(broker, wanting(*names), len(sent))
        assert {one.job: one for one in taken} == {one.job: one for one in sent}
        await expect_depths(broker, {})

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
        require(broker, "ordered")
        sent = tickets(30)
        for one in sent:
            await broker.publish([one])
        assert jobs(await broker.take(wanting("mail"), 20, ZERO)) == jobs(sent[:20])
        assert jobs(await broker.take(wanting("mail"), 20, ZERO)) == jobs(sent[20:])

    async def test_the_highest_priority_comes_first(self, broker: Broker) -> None:
        require(broker, "prioritised")
        sent = [ticket(priority=level) for level in (0, 9, 5, 1, 8, 9)]
        await broker.publish(sent)
        taken = [await broker.take(wanting("mail"), 1, ZERO) for _ in sent]
        assert [one.priority for (one,) in taken] == [9, 9, 8, 5, 1, 0]
        assert [taken[0][0].job, taken[1][0].job] == [sent[1].job, sent[5].job]

    async def test_priority_counts_across_types_and_queues(self, broker: Broker) -> None:
        require(broker, "prioritised")
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
        assert same_tickets(broker, taken, sent)

    async def test_a_job_is_not_held_twice(self, broker: Broker) -> None:
        require(broker, "deduplicates")
        one = ticket()
        await broker.publish([one, one])
        await broker.publish([one])
        assert await broker.depths() == {BacklogKey("mail", "mail"): 1}
        assert await broker.take(wanting("mail"), 10, ZERO) == [one]
        assert await broker.take(wanting("mail"), 10, ZERO) == []

    # -- fair between queues and types

    async def test_a_long_backlog_does_not_starve_another(self, broker: Broker) -> None:
        await broker.publish([*tickets(1000, "mail"), *tickets(3, "report")])
        taken = [(await broker.take(wanting("mail", "report"), 1, ZERO))[0].type for _ in range(6)]
        assert taken == ["mail", "report"] * 3

    async def test_a_batch_is_shared_between_types(self, broker: Broker) -> None:
        for name in ("a", "b", "c"):
            await broker.publish(tickets(100, name))
        taken = [one for _ in range(30) for one in await broker.take(wanting("a", "b", "c"), 4, ZERO)]
        assert {name: sum(one.type == name for one in taken) for name in "abc"} == {"a": 40, "b": 40, "c": 40}

    async def test_a_batch_is_filled_from_the_types_that_have_more(self, broker: Broker) -> None:
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
        await expect_depths(broker, {BacklogKey("slow", "mail"): 2})

    async def test_tickets_below_the_least_priority_of_their_queue_stay(self, broker: Broker) -> None:
        low, plain, other = ticket("mail", "a", priority=4), ticket("mail", "a"), ticket("mail", "b", priority=0)
        await broker.publish([low, plain, other])
        urgent = WorkRequest(frozenset({"mail"}), least_priority={"a": 5})
        assert same_tickets(broker, await take_all(broker, urgent, 2), [plain, other])
        take = await self.start_take(broker, urgent)
        await broker.publish([ticket("mail", "a", priority=0), plain])
        assert await promptly(take) == [plain]
        assert sorted(one.priority for one in await take_all(broker, wanting("mail"), 2)) == [0, 4]

    async def test_a_take_that_wants_nothing_gets_nothing(self, broker: Broker) -> None:
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

    async def test_tickets_outside_the_expected_backlogs_are_taken_too(self, broker: Broker) -> None:
        wanted = WorkRequest(frozenset({"mail"}), expected=frozenset({BacklogKey("mail", "mail")}))
        sent = [ticket("mail"), ticket("mail", "bulk")]
        await broker.publish(sent)
        assert sorted(jobs(await take_all(broker, wanted, 2))) == sorted(jobs(sent))

    # -- discarding

    async def test_a_ticket_that_was_discarded_does_not_come_again(self, broker: Broker) -> None:
        first, second = ticket(), ticket()
        await broker.publish([first])
        await broker.discard(await broker.take(wanting("mail"), 10, ZERO))
        await broker.publish([second])
        if broker.capabilities.redelivers:
            assert await broker.take(wanting("mail"), 10, ZERO) == [second]
            await self.redeliver(broker)
        assert await promptly(broker.take(wanting("mail"), 10, LONG)) == [second]
        assert await broker.take(wanting("mail"), 10, ZERO) == []

    async def test_a_ticket_whose_taker_is_lost_comes_again(self, broker: Broker) -> None:
        require(broker, "redelivers")
        sent = tickets(2)
        await broker.publish(sent)
        taken = await take_all(broker, wanting("mail"), 2)
        await broker.discard(taken[:1])
        await self.redeliver(broker)
        assert await promptly(broker.take(wanting("mail"), 10, LONG)) == taken[1:]

    async def test_a_ticket_may_be_discarded_again_and_without_being_taken(self, broker: Broker) -> None:
        one, other = ticket(), ticket()
        await broker.publish([one])
        taken = await broker.take(wanting("mail"), 10, ZERO)
        for _ in range(2):
            await broker.discard([*taken, other])
        await broker.publish([other])
        assert await promptly(broker.take(wanting("mail"), 10, LONG)) == [other]

    # -- depths, epoch

    async def test_depths_tell_what_is_held_by_queue_and_type(self, broker: Broker) -> None:
        mail, report, other = BacklogKey("a", "mail"), BacklogKey("a", "report"), BacklogKey("b", "mail")
        await broker.publish([ticket("mail", "a"), ticket("mail", "a", priority=9)])
        await broker.publish([ticket("report", "a"), ticket("mail", "b")])
        await expect_depths(broker, {mail: 2, report: 1, other: 1})
        assert (await broker.depths([mail]))[mail] == 2
        await broker.take(wanting("mail", queues=["a"]), 10, ZERO)
        await expect_depths(broker, {report: 1, other: 1})

    async def test_what_was_handed_to_a_waiting_taker_is_not_held(self, broker: Broker) -> None:
        take = await self.start_take(broker, wanting("mail"))
        await broker.publish(tickets(2))
        await promptly(take)
        await expect_depths(broker, {})

    async def test_what_is_held_is_told_job_by_job(self, broker: Broker) -> None:
        require(broker, "finds_held")
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
        require(broker, "epochs")
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
        assert same_tickets(broker, await broker.take(wanting("mail"), 10, ZERO), sent)

    async def test_the_same_ticket_may_be_published_again_after_it_was_taken(self, broker: Broker) -> None:
        one = ticket()
        for _ in range(3):
            await broker.publish([one])
            assert await broker.take(wanting("mail"), 10, ZERO) == [one]
