"""The broker on SQS keeps the contract, as far as SQS lets it; and what is lost, comes again, or is refused."""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.aws import AwsRefusal, AwsService
from penstock.broker import Broker, SignalMessage
from penstock.broker.memory import MemoryBroker
from penstock.broker.sqs import QueueTerms, SqsBroker
from penstock.broker.sqs.queues import list_queues
from penstock.broker.sqs.signals import SEEN_TAG, SnsSignals
from penstock.model.clock import SystemClock
from penstock.model.errors import BrokerUnavailable, InvalidSetting
from penstock.model.job import BacklogKey, Ticket
from penstock.model.workers import WorkRequest
from penstock.testing.broker_contract import BrokerContract
from penstock.testing.broker_stage import (
    BRIEFLY,
    LONG,
    PROMPTLY,
    ZERO,
    expect_depths,
    jobs,
    promptly,
    receive,
    take_all,
    ticket,
    tickets,
    wanting,
)
from tests.emulators import ministack, moto, use_emulator
from tests.services.test_aws import answering

PATIENT = timedelta(seconds=20)
MAIL = BacklogKey("mail", "mail")
prefixes = (f"test-{number}" for number in itertools.count())

Open = Callable[..., Awaitable[SqsBroker]]
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Account:
    """An AWS account in an emulator: the calls that are made to it, and answers that it is made to give."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.answers: dict[str, list[Answer]] = {}
        self.called: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    use_emulator(monkeypatch, ministack())
    account, make_call = Account(), AwsService.call

    async def count(self: AwsService, action: str, **arguments: Any) -> dict[str, Any]:
        account.calls[action] += 1
        account.called[action].set()
        if answers := account.answers.get(action):
            return answers.pop(0)(arguments)
        return await make_call(self, action, **arguments)

    monkeypatch.setattr(AwsService, "call", count)
    return account


@pytest.fixture
async def opening(account: Account) -> AsyncIterator[Open]:
    """Opens brokers that are closed afterwards."""
    opened: list[SqsBroker] = []

    async def opening(prefix: str | None = None, *, signals: bool = False, **terms: Any) -> SqsBroker:
        chosen, name = QueueTerms(**{"depths_age": ZERO, **terms}), prefix or next(prefixes)
        opened.append(await SqsBroker.open(name, SystemClock(), chosen, deadline=PATIENT, signals=signals))
        return opened[-1]

    yield opening
    for broker in opened:
        await broker.close()


def service_of(broker: SqsBroker) -> AwsService:
    """For calls beside the broker, as an operator makes them."""
    return broker._messages._service  # noqa: SLF001


async def url_of(broker: SqsBroker, key: BacklogKey = MAIL) -> str:
    """The queue of a backlog, created if it is missing."""
    return (await broker._queues.open(key)).url  # noqa: SLF001


async def flush(broker: SqsBroker) -> None:
    """Delete what was discarded, without waiting for more."""
    await broker._messages.close()  # noqa: SLF001


async def count_left(broker: SqsBroker) -> int:
    """The messages in a queue, those included that were taken and not deleted."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = await service_of(broker).call("GetQueueAttributes", QueueUrl=await url_of(broker), AttributeNames=names)
    return sum(map(int, left["Attributes"].values()))


class TestSqsBroker(BrokerContract):
    @pytest.fixture
    async def broker(self, opening: Open) -> SqsBroker:
        """A ticket that is not put back stays away for longer than any test waits."""
        return await opening(signals=True, visibility=timedelta(minutes=10))

    @pytest.mark.parametrize("seed", range(2))
    async def test_a_hundred_takers_cancelled_at_random_lose_nothing(self, broker: Broker, seed: int) -> None:
        """Fewer than elsewhere: each takes seconds."""
        await super().test_a_hundred_takers_cancelled_at_random_lose_nothing(broker, seed)

    async def lose(self, broker: Any) -> None:
        await service_of(broker).call("PurgeQueue", QueueUrl=await url_of(broker))

    async def redeliver(self, broker: Any) -> None:
        """Let the visibility time of all taken tickets end."""
        for receipts in broker._messages._receipts.values():  # noqa: SLF001
            for one in receipts:
                entry = {"Id": "0", "ReceiptHandle": one.handle, "VisibilityTimeout": 0}
                await service_of(broker).call("ChangeMessageVisibilityBatch", QueueUrl=one.queue.url, Entries=[entry])

    async def subscribe(self, broker: Any, *signals: str) -> AsyncIterator[SignalMessage]:
        listener: AsyncIterator[SignalMessage] = broker.listen(signals)
        assert {one.signal for one in await receive(listener, len(signals))} == set(signals)
        return listener


# -- what is lost, and comes again


async def test_a_taker_cancelled_after_it_was_given_tickets_takes_none(
    opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await opening(visibility=timedelta(minutes=10))
    take = asyncio.ensure_future(broker.take(wanting("mail"), 10, LONG))
    hand_out = MemoryBroker.publish

    async def cancel_before_its_turn(self: MemoryBroker, given: Sequence[Ticket]) -> None:
        await hand_out(self, given)
        asyncio.get_running_loop().call_soon(take.cancel)

    monkeypatch.setattr(MemoryBroker, "publish", cancel_before_its_turn)
    one = ticket()
    await broker.publish([one])
    with pytest.raises(asyncio.CancelledError):
        await take
    assert await promptly(broker.take(wanting("mail"), 10, LONG)) == [one]


async def test_what_arrives_for_a_taker_that_was_cancelled_goes_back(opening: Open, account: Account) -> None:
    """A long poll that is under way is not given up with its taker: SQS may have answered it."""
    prefix = next(prefixes)
    here, there = [await opening(prefix, visibility=timedelta(minutes=10)) for _ in range(2)]
    await url_of(here)
    take = asyncio.ensure_future(here.take(wanting("mail"), 10, LONG))
    async with asyncio.timeout(PROMPTLY):
        await account.called["ReceiveMessage"].wait()
        take.cancel()
        one = ticket()
        await there.publish([one])
        await account.called["ChangeMessageVisibilityBatch"].wait()
    assert await promptly(there.take(wanting("mail"), 10, LONG)) == [one]


async def test_what_is_discarded_leaves_its_queue_and_nothing_else_does(opening: Open) -> None:
    broker = await opening()
    await broker.publish(tickets(25))
    taken = await take_all(broker, wanting("mail"), 25)
    await broker.discard(taken[:23])
    await flush(broker)
    assert await count_left(broker) == 2


async def test_the_ticket_of_a_worker_that_was_killed_comes_again_to_another(opening: Open) -> None:
    prefix = next(prefixes)
    killed, alive = [await opening(prefix, visibility=timedelta(seconds=1)) for _ in range(2)]
    await killed.publish(tickets(2))
    taken = await take_all(killed, wanting("mail"), 2)
    await killed.discard(taken[:1])
    await flush(killed)
    assert await promptly(alive.take(wanting("mail"), 10, LONG)) == taken[1:]


async def test_racing_takers_of_two_processes_get_each_ticket_once(opening: Open) -> None:
    prefix = next(prefixes)
    brokers = [await opening(prefix) for _ in range(2)]
    sent, taken = tickets(200), list[Ticket]()

    async def drain(broker: SqsBroker) -> None:
        while len(taken) < len(sent):
            got = await broker.take(wanting("mail"), 7, BRIEFLY)
            taken.extend(got)
            await broker.discard(got)

    async with asyncio.timeout(PROMPTLY), asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(drain(brokers[number % 2]))
        for start in range(0, len(sent), 50):
            await brokers[start // 50 % 2].publish(sent[start : start + 50])
    assert sorted(jobs(taken)) == sorted(jobs(sent))


async def test_a_taker_finds_the_queue_that_another_process_creates_while_it_waits(opening: Open) -> None:
    prefix = next(prefixes)
    here, there = [await opening(prefix, list_interval=timedelta(milliseconds=100)) for _ in range(2)]
    take = asyncio.ensure_future(here.take(wanting("mail"), 10, LONG))
    one = ticket("mail", "bulk.urgent")
    await there.publish([one])
    assert await promptly(take) == [one]


async def test_an_expected_queue_is_created_before_its_first_ticket(opening: Open) -> None:
    prefix = next(prefixes)
    here, there = [await opening(prefix) for _ in range(2)]
    expected = BacklogKey("sums", "add")
    wanted = WorkRequest(frozenset({"add"}), expected=frozenset({expected}))
    assert await here.take(wanted, 10, ZERO) == []
    one = ticket("add", "sums")
    await there.publish([one])
    assert await promptly(here.take(wanted, 10, LONG)) == [one]


async def test_a_take_goes_on_without_a_queue_that_was_deleted(opening: Open) -> None:
    broker = await opening()
    await broker.publish(tickets(3))
    await service_of(broker).call("DeleteQueue", QueueUrl=await url_of(broker))
    assert await broker.take(wanting("mail"), 10, ZERO) == []
    take = asyncio.ensure_future(broker.take(wanting("mail"), 10, LONG))
    one = ticket()
    await broker.publish([one])
    assert await promptly(take) == [one]


async def test_a_publish_into_a_queue_that_was_deleted_creates_it_again(opening: Open) -> None:
    broker = await opening()
    await broker.publish(tickets(3))
    await service_of(broker).call("DeleteQueue", QueueUrl=await url_of(broker))
    one = ticket()
    await broker.publish([one])
    assert await promptly(broker.take(wanting("mail"), 10, LONG)) == [one]


async def test_a_message_that_is_no_ticket_costs_only_itself(opening: Open, caplog: pytest.LogCaptureFixture) -> None:
    broker = await opening()
    one = ticket()
    await broker.publish([one])
    url = await url_of(broker)
    for body in ("hello", '{"job": "1", "queue": "mail", "type": "mail"}', "[1, 2]"):
        await service_of(broker).call("SendMessage", QueueUrl=url, MessageBody=body)
    await broker.discard(await take_all(broker, wanting("mail"), 1))
    await broker.take(wanting("mail"), 10, BRIEFLY)
    await flush(broker)
    assert await count_left(broker) == 0
    assert sum("is no ticket" in record.message for record in caplog.records) == 3


# -- refusals


async def test_a_missing_queue_that_may_not_be_created_is_named(opening: Open) -> None:
    broker = await opening("shop", create=False)
    with pytest.raises(BrokerUnavailable, match=r"no queue shop-mail; create it, or set broker\.create"):
        await broker.publish(tickets(1))
    wanted = WorkRequest(frozenset({"mail"}), expected=frozenset({MAIL}))
    assert await broker.take(wanted, 1, ZERO) == []


async def test_a_right_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, "400 Bad Request", "AccessDeniedException"):
        broker = await SqsBroker.open("shop", SystemClock(), signals=False)
        with pytest.raises(BrokerUnavailable, match="sqs:GetQueueUrl"):
            await broker.publish(tickets(1))
        with pytest.raises(BrokerUnavailable, match="sqs:ListQueues"):
            await broker.take(wanting("mail"), 1, LONG)
        await broker.close()


async def test_a_waiting_taker_learns_that_sqs_refuses(opening: Open, account: Account) -> None:
    broker = await opening()
    await broker.publish(tickets(1))
    account.answers["ReceiveMessage"] = [refuse]
    with pytest.raises(BrokerUnavailable, match="OverLimit"):
        await promptly(broker.take(wanting("mail"), 1, LONG))
    assert len(await promptly(broker.take(wanting("mail"), 1, LONG))) == 1


def refuse(_: dict[str, Any]) -> dict[str, Any]:
    raise AwsRefusal("OverLimit", "too many messages are in flight", {})


def answer_failed(*failed: str, fault: bool) -> Answer:
    """The answer to a batch of which these entries were not taken."""
    told = {"SenderFault": fault, "Code": "InternalError", "Message": "told"}
    return lambda _: {"Failed": [{"Id": one, **told} for one in failed]}


async def test_entries_that_failed_are_sent_again_and_no_others(opening: Open, account: Account) -> None:
    broker = await opening()
    await url_of(broker)
    account.answers["SendMessageBatch"] = [answer_failed("1", fault=False)]
    sent = tickets(3)
    await broker.publish(sent)
    assert await broker.take(wanting("mail"), 10, ZERO) == [sent[1]]


async def test_entries_that_sqs_refuses_are_an_error(opening: Open, account: Account) -> None:
    broker = await opening()
    await url_of(broker)
    account.answers["SendMessageBatch"] = [answer_failed("1", "2", fault=True)]
    with pytest.raises(BrokerUnavailable, match="2 of 3 tickets"):
        await broker.publish(tickets(3))
    assert account.calls["SendMessageBatch"] == 1


async def test_a_ticket_too_large_for_a_message_is_refused_before_the_call(opening: Open, account: Account) -> None:
    broker = await opening()
    with pytest.raises(BrokerUnavailable, match="shorter names"):
        await broker.publish([ticket("mail", "q" * 30_000)])
    assert account.calls["SendMessageBatch"] == 0


async def test_a_prefix_that_cannot_begin_a_name_is_refused() -> None:
    for prefix in ("", "a_b", "-a", "a-", "ä", "a" * 41):
        with pytest.raises(InvalidSetting, match="sqs://PREFIX"):
            await SqsBroker.open(prefix, SystemClock())


# -- signals


def signals_of(broker: SqsBroker) -> SnsSignals:
    signals = broker._signals  # noqa: SLF001
    assert isinstance(signals, SnsSignals)
    return signals


async def test_signals_reach_every_process_and_leave_no_queue_behind(opening: Open) -> None:
    prefix = next(prefixes)
    here, there = [await opening(prefix, signals=True) for _ in range(2)]
    listener = here.listen(["door"])
    assert await receive(listener, 1) == [SignalMessage("door")]
    await there.send_signal("door", b"open")
    assert await receive(listener, 1) == [SignalMessage("door", b"open")]
    await here.close()
    assert await list_queues(service_of(there), f"{prefix}_signals") == []
    topic = await signals_of(there)._find_topic()  # noqa: SLF001
    assert await signals_of(there)._read_subscriptions(topic) == []  # noqa: SLF001


async def test_many_signals_are_one_request(opening: Open, account: Account) -> None:
    broker = await opening(signals=True)
    listener = broker.listen(["door"])
    await receive(listener, 1)
    for number in range(100):
        await broker.send_signal("door", b"%d" % number)
    assert [one.message for one in await receive(listener, 100)] == [b"%d" % number for number in range(100)]
    assert account.calls["Publish"] == 1


async def test_signals_too_large_for_a_message_arrive_without_theirs(opening: Open) -> None:
    broker = await opening(signals=True)
    listener = broker.listen(["door"])
    await receive(listener, 1)
    for _ in range(3):
        await broker.send_signal("door", b"x" * 100_000)
    assert await receive(listener, 1) == [SignalMessage("door")]


async def test_queues_of_processes_that_are_gone_are_removed(opening: Open) -> None:
    prefix = next(prefixes)
    here, dead = [await opening(prefix, signals=True) for _ in range(2)]
    await receive(dead.listen(["door"]), 1)
    (left_behind,) = await list_queues(service_of(here), f"{prefix}_signals")
    await service_of(here).call("TagQueue", QueueUrl=left_behind[1], Tags={SEEN_TAG: "1700000000"})
    await receive(here.listen(["door"]), 1)
    left = await list_queues(service_of(here), f"{prefix}_signals")
    assert (len(left), left_behind in left) == (1, False)


async def test_a_process_without_sns_hears_itself_and_asks_nothing(opening: Open, account: Account) -> None:
    broker = await opening()
    listener = broker.listen(["door"])
    await broker.send_signal("door", b"open")
    assert await receive(listener, 1) == [SignalMessage("door", b"open")]
    assert not account.calls


# -- a second opinion


async def test_moto_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    use_emulator(monkeypatch, moto())
    broker = await SqsBroker.open(next(prefixes), SystemClock(), QueueTerms(depths_age=ZERO), deadline=PATIENT)
    listener = broker.listen(["door"])
    await receive(listener, 1)
    sent = [*tickets(12), ticket("mail", "bulk.urgent")]
    await broker.publish(sent)
    await expect_depths(broker, {MAIL: 12, BacklogKey("bulk.urgent", "mail"): 1})
    taken = await take_all(broker, wanting("mail"), 13)
    assert sorted(jobs(taken)) == sorted(jobs(sent))
    await broker._messages.put_back(taken[:2])  # noqa: SLF001
    await broker.discard(taken[2:])
    assert sorted(jobs(await take_all(broker, wanting("mail"), 2))) == sorted(jobs(taken[:2]))
    await broker.send_signal("door", b"open")
    assert await receive(listener, 1) == [SignalMessage("door", b"open")]
    await broker.close()
