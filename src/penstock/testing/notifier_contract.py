"""What every notifier must do: a pytest class that the test of a backend subclasses, with a fixture and hooks."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import ClassVar, Protocol

import pytest

from penstock.events.cloudevents import OutgoingEvent
from penstock.events.notifier import Delivered, Gone, Notifier, Rejected, Unreachable
from penstock.model.errors import Invalid
from penstock.model.events import JobEvent, event_id
from penstock.model.ids import ShardId, new_job_id
from penstock.model.job import Job
from penstock.model.lifecycle import Move, State
from penstock.model.retry import Retry
from penstock.model.subscriptions import Subscription, SubscriptionSink
from penstock.model.wire.jobs import job_item
from penstock.testing.clock import START
from penstock.webhooks import ReceivedEvent

DAY = timedelta(days=1)
RNG = random.Random(13)


class NotifierStage(Protocol):
    """A sink of one's own that does as it is told, and tells what it got, a message with one or more events each."""

    @property
    def notifier(self) -> Notifier: ...

    def subscription(self, *, batch: int = 1) -> Subscription:
        """A subscription with this sink."""
        ...

    def received(self) -> list[tuple[str, list[ReceivedEvent]]]:
        """The messages so far: the id of each, and its events."""
        ...

    def refuse(self, text: str, retry_after: int | None = None) -> None:
        """Let the sink refuse the next message with this explanation, asking for a pause of so many seconds."""
        ...

    def vanish(self) -> None:
        """Let the sink say to the next message that it is gone for good."""
        ...

    def hang(self) -> None:
        """Let the sink not answer the next message."""
        ...

    async def wait_until_asked(self) -> None:
        """Return once a message has come in."""
        ...

    async def stop(self) -> None:
        """Take the sink away: it cannot be reached any more."""
        ...

    def wrong_sinks(self) -> Sequence[SubscriptionSink]:
        """Sinks that must be refused."""
        ...


def told_event(version: int = 1) -> OutgoingEvent:
    """An event of a new job, with the job."""
    job = new_job_id(1_800_000_000_000, ShardId(RNG.randrange(4)), RNG)
    event = JobEvent(
        id=event_id(job, version),
        job=job,
        version=version,
        type="mail",
        queue="bulk",
        move=Move.SUBMIT,
        before=None,
        after=State.QUEUED,
        attempt=0,
        reason=None,
        at=START,
    )
    row = Job(id=job, type="mail", queue="bulk", state=State.QUEUED, retry=Retry(), due_at=START, created_at=START)
    return OutgoingEvent(event, job_item(row, None))


class NotifierContract(ABC):
    """The promises of `penstock.events.notifier`, each as a test."""

    asks_for_pauses: ClassVar[bool] = True
    """Whether sinks of this kind can say how long to wait before the next message."""

    @pytest.fixture
    @abstractmethod
    def stage(self) -> AsyncIterator[NotifierStage]:
        """A notifier and a sink that works."""
        ...

    async def test_an_event_arrives_with_its_job(self, stage: NotifierStage) -> None:
        sent = told_event()
        assert isinstance(await stage.notifier.deliver(stage.subscription(), [sent]), Delivered)
        ((_, (received,)),) = stage.received()
        assert received.event == sent.event
        assert received.job is not None
        assert received.job.id == sent.event.job

    async def test_an_event_arrives_without_its_job_where_there_is_none(self, stage: NotifierStage) -> None:
        sent = OutgoingEvent(told_event().event)
        assert isinstance(await stage.notifier.deliver(stage.subscription(), [sent]), Delivered)
        assert [received for _, received in stage.received()] == [[ReceivedEvent(sent.event, None)]]

    async def test_a_batch_arrives_whole_and_in_order(self, stage: NotifierStage) -> None:
        sent = [told_event(version) for version in range(1, 101)]
        assert isinstance(await stage.notifier.deliver(stage.subscription(batch=100), sent), Delivered)
        received = [one for _, message in stage.received() for one in message]
        assert [one.event for one in received] == [one.event for one in sent]

    async def test_a_batch_may_have_one_event(self, stage: NotifierStage) -> None:
        sent = told_event()
        assert isinstance(await stage.notifier.deliver(stage.subscription(batch=100), [sent]), Delivered)
        ((_, (received,)),) = stage.received()
        assert received.event == sent.event

    @pytest.mark.parametrize("batch", [1, 10])
    async def test_events_sent_again_have_the_same_message_id(self, stage: NotifierStage, batch: int) -> None:
        sent = [told_event() for _ in range(batch)]
        subscription = stage.subscription(batch=batch)
        for events in (sent, sent, [told_event()]):
            await stage.notifier.deliver(subscription, events)
        *twice, other = [id for id, _ in stage.received()]
        half = len(twice) // 2
        assert twice[:half] == twice[half:]
        assert other not in twice

    async def test_many_deliveries_may_be_under_way(self, stage: NotifierStage) -> None:
        sent = [told_event() for _ in range(50)]
        subscription = stage.subscription()
        deliveries = await asyncio.gather(*(stage.notifier.deliver(subscription, [one]) for one in sent))
        assert {type(one) for one in deliveries} == {Delivered}
        arrived = {one.event.id for _, received in stage.received() for one in received}
        assert arrived == {one.event.id for one in sent}

    async def test_a_sink_that_refuses_is_quoted(self, stage: NotifierStage) -> None:
        stage.refuse("the queue is full")
        delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
        assert isinstance(delivery, Rejected)
        assert delivery.retry_after is None
        assert "the queue is full" in delivery.detail

    @pytest.mark.parametrize(("asked", "kept"), [(90, timedelta(seconds=90)), (10_000_000, DAY)])
    async def test_a_pause_that_the_sink_asks_for_is_told_up_to_a_day(
        self, stage: NotifierStage, asked: int, kept: timedelta
    ) -> None:
        stage.refuse("not now", retry_after=asked)
        delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
        assert isinstance(delivery, Rejected)
        assert delivery.retry_after == (kept if self.asks_for_pauses else None)

    async def test_a_sink_works_again_after_it_refused(self, stage: NotifierStage) -> None:
        stage.refuse("not now")
        outcomes = [await stage.notifier.deliver(stage.subscription(), [told_event()]) for _ in range(2)]
        assert [type(one) for one in outcomes] == [Rejected, Delivered]

    async def test_a_sink_that_is_gone_is_told_from_one_that_refuses(self, stage: NotifierStage) -> None:
        stage.vanish()
        assert isinstance(await stage.notifier.deliver(stage.subscription(), [told_event()]), Gone)

    async def test_a_sink_that_does_not_answer_is_given_up(self, stage: NotifierStage) -> None:
        stage.hang()
        assert isinstance(await stage.notifier.deliver(stage.subscription(), [told_event()]), Unreachable)

    async def test_a_sink_that_does_not_answer_holds_up_no_other_delivery(self, stage: NotifierStage) -> None:
        stage.hang()
        hanging = asyncio.create_task(stage.notifier.deliver(stage.subscription(), [told_event()]))
        await stage.wait_until_asked()
        assert isinstance(await stage.notifier.deliver(stage.subscription(), [told_event()]), Delivered)
        assert isinstance(await hanging, Unreachable)

    async def test_a_sink_that_cannot_be_reached_is_said_to_be_so(self, stage: NotifierStage) -> None:
        await stage.stop()
        delivery = await stage.notifier.deliver(stage.subscription(), [told_event()])
        assert isinstance(delivery, Unreachable)
        assert delivery.detail

    async def test_a_good_sink_passes_the_check(self, stage: NotifierStage) -> None:
        await stage.notifier.check(stage.subscription().sink)
        assert stage.received() == []

    async def test_a_wrong_sink_is_refused_by_the_check(self, stage: NotifierStage) -> None:
        for sink in stage.wrong_sinks():
            with pytest.raises(Invalid):
                await stage.notifier.check(sink)

    async def test_a_notifier_can_be_closed_twice(self, stage: NotifierStage) -> None:
        await stage.notifier.deliver(stage.subscription(), [told_event()])
        await stage.notifier.close()
        await stage.notifier.close()

    async def test_a_delivery_under_way_ends_when_the_notifier_is_closed(self, stage: NotifierStage) -> None:
        stage.hang()
        hanging = asyncio.create_task(stage.notifier.deliver(stage.subscription(), [told_event()]))
        await stage.wait_until_asked()
        await stage.notifier.close()
        assert isinstance(await hanging, Unreachable)
