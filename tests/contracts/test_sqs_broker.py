"""The broker on SQS keeps the contract, as far as SQS lets it; and what it costs, loses and says when SQS refuses."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.aws import AwsService
from penstock.broker import SignalMessage
from penstock.broker.sqs import SqsBroker
from penstock.broker.sqs.queues import QueueTerms
from penstock.model.clock import SystemClock
from penstock.testing.broker_contract import BrokerContract
from penstock.testing.broker_stage import ZERO, receive
from tests.emulators import ministack, use_emulator

PATIENT = timedelta(seconds=20)
prefixes = (f"test-{number}" for number in itertools.count())

Open = Callable[..., Awaitable[SqsBroker]]


class Account:
    """An AWS account in an emulator, and the calls that were made to it."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    @property
    def requests(self) -> int:
        return sum(count for call, count in self.calls.items() if call.startswith("sqs:"))


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    use_emulator(monkeypatch, ministack())
    account, call = Account(), AwsService.call

    async def count(self: AwsService, action: str, **arguments: Any) -> dict[str, Any]:
        account.calls[f"{self.service}:{action}"] += 1
        return await call(self, action, **arguments)

    monkeypatch.setattr(AwsService, "call", count)
    return account


@pytest.fixture
async def opening(account: Account) -> AsyncIterator[Open]:
    """Opens brokers that are closed afterwards."""
    opened: list[SqsBroker] = []

    async def opening(prefix: str | None = None, **terms: Any) -> SqsBroker:
        signals = terms.pop("signals", False)
        chosen = QueueTerms(**{"depths_age": ZERO, **terms})
        opened.append(
            await SqsBroker.open(prefix or next(prefixes), SystemClock(), chosen, deadline=PATIENT, signals=signals)
        )
        return opened[-1]

    yield opening
    for broker in opened:
        await broker.close()


class TestSqsBroker(BrokerContract):
    @pytest.fixture
    async def broker(self, opening: Open) -> SqsBroker:
        return await opening(signals=True)

    @pytest.mark.parametrize("seed", range(2))
    async def test_a_hundred_takers_cancelled_at_random_lose_nothing(self, broker: SqsBroker, seed: int) -> None:
        """Fewer than elsewhere: each takes seconds."""
        await super().test_a_hundred_takers_cancelled_at_random_lose_nothing(broker, seed)

    async def lose(self, broker: Any) -> None:
        for queue in broker._queues._known.values():  # noqa: SLF001 - as an operator who purges them
            await broker._messages._service.call("PurgeQueue", QueueUrl=queue.url)  # noqa: SLF001

    async def redeliver(self, broker: Any) -> None:
        """Their visibility time ends."""
        await end_visibility(broker)

    async def subscribe(self, broker: Any, *signals: str) -> AsyncIterator[SignalMessage]:
        listener: AsyncIterator[SignalMessage] = broker.listen(signals)
        assert {one.signal for one in await receive(listener, len(signals))} == set(signals)
        return listener


async def end_visibility(broker: SqsBroker) -> None:
    """As when the visibility time of all taken tickets has passed."""
    messages = broker._messages  # noqa: SLF001
    for receipts in messages._receipts.values():  # noqa: SLF001
        for one in receipts:
            entry = {"Id": "0", "ReceiptHandle": one.handle, "VisibilityTimeout": 0}
            await messages._service.call("ChangeMessageVisibilityBatch", QueueUrl=one.queue.url, Entries=[entry])  # noqa: SLF001
    broker._empty_at.clear()  # noqa: SLF001
