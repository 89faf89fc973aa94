"""Submit: one answer each, one job per key, everything kept."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.model.errors import Invalid
from penstock.model.job import FileLink, JobFilter, Lease, ObjectLink
from penstock.model.lifecycle import Move, State
from penstock.model.retry import Retry
from penstock.model.submission import Known
from penstock.testing.store_contract.stage import MINUTE, TICKET, OnStage, StoreStage

OUT_OF_RANGE = [
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    datetime(3000, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, tzinfo=UTC),
]
LINK = ObjectLink("objects/1", 9, "sha256:00", "text/plain")


class SubmitContract(OnStage):
    async def test_a_due_job_is_queued_and_another_scheduled(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        news = [stage.new(), stage.new(delay=MINUTE), stage.new(due_at=now + MINUTE), stage.new(due_at=now - MINUTE)]
        jobs = [answer.job for answer in await stage.store.submit(news, TICKET)]
        assert [job.state for job in jobs] == [State.QUEUED, State.SCHEDULED, State.SCHEDULED, State.QUEUED]
        assert [job.due_at - now for job in jobs] == [timedelta(), MINUTE, MINUTE, -MINUTE]

    async def test_answers_come_in_order_and_are_what_is_read_later(self, stage: StoreStage) -> None:
        news = [stage.new(priority=number % 10) for number in range(300)]
        answers = await stage.store.submit(news, TICKET)
        assert [answer.job.id for answer in answers] == [new.id for new in news]
        assert await stage.store.get([new.id for new in news]) == [answer.job for answer in answers]

    async def test_the_event_tells_of_the_submit(self, stage: StoreStage) -> None:
        (answer,) = await stage.store.submit([stage.new(type="mail", queue="slow", delay=MINUTE)], TICKET)
        event = answer.event
        assert event is not None
        assert (event.move, event.before, event.after) == (Move.SUBMIT, None, State.SCHEDULED)
        assert (event.job, event.type, event.queue, event.at) == (answer.job.id, "mail", "slow", stage.clock.now())
        assert (event.fence, event.attempt) == (0, 0)

    async def test_everything_asked_for_is_kept(self, stage: StoreStage) -> None:
        new = stage.new(
            queue="slow",
            priority=9,
            params=None,
            params_object=LINK,
            retry=Retry.fixed(2, max_attempts=9, never=("ValueError",)),
            timeout=timedelta(seconds=1.5),
            expires_at=stage.clock.now() + MINUTE,
            tags=("red", "blue"),
            inputs=(FileLink("a.txt", LINK),),
            retry_of=stage.unknown(),
            schedule="nightly",
            tick_at=stage.clock.now() - MINUTE,
            interval=MINUTE,
        )
        (answer,) = await stage.store.submit([new], TICKET)
        job = await stage.job(new.id)
        assert job == answer.job
        for field in ("queue", "priority", "params", "params_object", "retry", "timeout", "expires_at", "tags"):
            assert getattr(job, field) == getattr(new, field), field
        assert (job.schedule, job.tick_at, job.interval) == (new.schedule, new.tick_at, new.interval)
        assert (job.inputs, job.retry_of, job.created_at) == (new.inputs, new.retry_of, stage.clock.now())

    async def test_a_key_that_exists_gives_its_job_back_unchanged(self, stage: StoreStage) -> None:
        first = await stage.submit(key="k", fingerprint=b"1", priority=3)
        (again,) = await stage.store.submit([stage.new(key="k", fingerprint=b"1", priority=8)], TICKET)
        assert (again.job, again.event, again.conflict) == (first, None, False)
        assert len(await stage.all_jobs()) == 1

    async def test_a_key_with_another_fingerprint_is_a_conflict(self, stage: StoreStage) -> None:
        first = await stage.submit(key="k", fingerprint=b"1")
        (again,) = await stage.store.submit([stage.new(key="k", fingerprint=b"2")], TICKET)
        assert (again.job, again.event, again.conflict) == (first, None, True)
        assert len(await stage.all_jobs()) == 1

    async def test_of_equal_keys_in_one_batch_the_first_wins(self, stage: StoreStage) -> None:
        news = [
            stage.new(key="k", fingerprint=b"1"),
            stage.new(),
            stage.new(key="k", fingerprint=b"1"),
            stage.new(key="k", fingerprint=b"2"),
        ]
        answers = await stage.store.submit(news, TICKET)
        assert [answer.job.id for answer in answers] == [news[0].id, news[1].id, news[0].id, news[0].id]
        assert [answer.event is not None for answer in answers] == [True, True, False, False]
        assert [answer.conflict for answer in answers] == [False, False, False, True]

    async def test_concurrent_submits_of_one_key_give_one_job(self, stage: StoreStage) -> None:
        calls = [stage.store.submit([stage.new(key="k")], TICKET) for _ in range(20)]
        answers = [answer for (answer,) in await asyncio.gather(*calls)]
        assert len({answer.job.id for answer in answers}) == 1
        assert sum(answer.event is not None for answer in answers) == 1

    async def test_the_key_of_an_ended_job_still_gives_that_job(self, stage: StoreStage) -> None:
        ended = await stage.end_job(key="k")
        assert (await stage.submit(key="k")).id == ended

    async def test_a_repeated_submit_of_the_same_job_inserts_it_once(self, stage: StoreStage) -> None:
        new = stage.new()
        first, again = await stage.store.submit([new, new], TICKET)
        (later,) = await stage.store.submit([new], TICKET)
        assert first.event is not None
        assert (again, later) == (Known(first.job), Known(first.job))

    async def test_a_repeated_batch_adds_what_is_missing_whatever_became_of_the_rest(self, stage: StoreStage) -> None:
        batch = [stage.new(tags=("red",)) for _ in range(6)]
        await stage.store.submit(batch[:4], TICKET)
        ended, running = await stage.claim(batch[0].id, batch[1].id)
        await stage.settle(Lease(ended.job, ended.fence))
        first, second = await asyncio.gather(*(stage.store.submit(batch, TICKET) for _ in range(2)))
        assert [answer.job.id for answer in first] == [answer.job.id for answer in second] == [new.id for new in batch]
        inserted = [answer.job.id for answer in (*first, *second) if answer.event is not None]
        assert sorted(inserted) == sorted(new.id for new in batch[4:])
        found = [await stage.job(new.id) for new in batch]
        assert [job.state for job in found] == [State.SUCCEEDED, State.RUNNING, *[State.QUEUED] * 4]
        assert await stage.read_counts() == await stage.count_jobs()
        again, new = await stage.store.submit([batch[0], stage.new()], TICKET)
        assert (again.event is None, again.job.state, new.event is None) == (True, State.SUCCEEDED, False)
        assert running.fence == (await stage.job(running.job)).fence

    async def test_a_job_that_was_there_does_not_hide_new_ones(self, stage: StoreStage) -> None:
        await stage.submit(key="k", tags=("red",))
        news = [stage.new(key="k", tags=("red",)), stage.new(tags=("red",)), stage.new(key="l")]
        answers = await stage.store.submit(news, TICKET)
        assert [answer.event is not None for answer in answers] == [False, True, True]
        assert len(await stage.all_jobs(JobFilter(tag="red"))) == 2
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_a_ticketed_job_gets_no_second_ticket_before_its_deadline(self, stage: StoreStage) -> None:
        job = await stage.submit(ticketed=True)
        assert await stage.dispatch({"mail": 9}) == []
        stage.clock.advance(TICKET)
        assert await stage.expire_overdue_tickets() == 1
        assert [ticket.job for ticket in await stage.dispatch({"mail": 9})] == [job.id]

    @pytest.mark.parametrize("at", OUT_OF_RANGE)
    @pytest.mark.parametrize("field", ["due_at", "expires_at", "tick_at"])
    async def test_an_instant_out_of_range_is_refused_and_its_job_with_it(
        self, stage: StoreStage, field: str, at: datetime
    ) -> None:
        kept = await stage.submit()
        with pytest.raises(Invalid):
            await stage.store.submit([stage.new(**{field: at})], TICKET)
        assert await stage.all_jobs() == [kept]
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_nothing_submitted_is_nothing_answered(self, stage: StoreStage) -> None:
        assert await stage.store.submit([], TICKET) == []
