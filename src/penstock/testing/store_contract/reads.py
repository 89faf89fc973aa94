"""Get, page, counts, oldest_due, logs: what is read agrees with what was written."""

import asyncio
import random
from typing import Any

import pytest

from penstock.model.errors import Invalid
from penstock.model.job import Job, JobFilter, Lease, LogLine
from penstock.model.lifecycle import State
from penstock.testing.store_contract.stage import KEEP, MINUTE, SECOND, TICKET, OnStage, StoreStage


class ReadContract(OnStage):
    async def test_get_answers_in_order(self, stage: StoreStage) -> None:
        first, second = await stage.submit(), await stage.submit()
        unknown = stage.unknown()
        assert await stage.store.get([second.id, unknown, first.id, second.id]) == [second, None, first, second]
        assert await stage.store.get([]) == []

    async def test_a_page_is_newest_first(self, stage: StoreStage) -> None:
        jobs = []
        for _ in range(5):
            jobs.append(await stage.submit())
            stage.clock.advance(SECOND)
        page = await stage.store.page(JobFilter(), None, 3)
        assert (list(page.jobs), page.cursor is None) == (jobs[:1:-1], False)
        rest = await stage.store.page(JobFilter(), page.cursor, 3)
        assert (list(rest.jobs), rest.cursor) == (jobs[1::-1], None)

    async def test_jobs_of_one_instant_are_newest_first_in_their_line(self, stage: StoreStage) -> None:
        jobs = [(await stage.submit()).id for _ in range(9)]
        listed = [job.id for job in await stage.all_jobs(page=2)]
        assert (len(listed), stage.lines(listed)) == (9, stage.lines(reversed(jobs)))

    async def test_a_page_may_begin_behind_any_job(self, stage: StoreStage) -> None:
        for _ in range(7):
            await stage.submit()
        page = await stage.store.page(JobFilter(), None, 9)
        for number, cursor in enumerate(page.behind, 1):
            behind = await stage.store.page(JobFilter(), cursor, 9)
            assert list(behind.jobs) == page.jobs[number:]
        assert (len(page.behind), page.missing) == (7, ())

    async def test_a_page_that_is_just_full_is_the_last(self, stage: StoreStage) -> None:
        await stage.store.submit([stage.new() for _ in range(3)], TICKET)
        assert (await stage.store.page(JobFilter(), None, 3)).cursor is None

    async def test_filters_restrict_and_combine(self, stage: StoreStage) -> None:
        await populate(stage)
        everything = await stage.all_jobs()
        for where in every_filter():
            expected = [job for job in everything if matches(job, where)]
            assert await stage.all_jobs(where, page=2) == expected, where

    async def test_a_list_goes_by_age_whatever_the_line_goes_by(self, stage: StoreStage) -> None:
        for number in range(40):
            delay = MINUTE if number % 6 == 0 else None
            type_name = ("mail", "scan")[number % 2]
            await stage.submit(queue="q", type=type_name, priority=number % 7, ticketed=number % 5 == 0, delay=delay)
        await stage.claim_next({"q": 9})
        everything = await stage.all_jobs(page=3)
        assert len(everything) == 40
        for state in (None, State.SCHEDULED, State.QUEUED, State.RUNNING):
            where = JobFilter(queue="q", type="scan", state=state)
            matching = [job.id for job in everything if job.type == "scan" and state in (None, job.state)]
            listed = [job.id for job in await stage.all_jobs(where, page=3)]
            assert (sorted(listed), stage.lines(listed)) == (sorted(matching), stage.lines(matching))

    async def test_a_cursor_is_stable_while_jobs_come_and_go(self, stage: StoreStage) -> None:
        for number in range(30):
            await (stage.end_job() if number % 3 else stage.submit())
        stage.clock.advance(KEEP.failed)
        stay = [job.id for job in await stage.all_jobs() if not job.ended]
        seen: list[str] = []
        cursor = None
        for _ in range(99):
            page = await stage.store.page(JobFilter(), cursor, 4)
            seen += [job.id for job in page.jobs]
            cursor = page.cursor
            if cursor is None:
                break
            await stage.submit()
            await stage.prune(2)
        assert len(seen) == len(set(seen))
        assert [job for job in seen if job in stay] == stay

    @pytest.mark.parametrize("cursor", ["", "?", "-1", "nonsense", "1.5", "9" * 40])
    async def test_what_is_not_a_cursor_is_refused(self, stage: StoreStage, cursor: str) -> None:
        await stage.submit()
        with pytest.raises(Invalid):
            await stage.store.page(JobFilter(), cursor, 9)

    async def test_counts_agree_with_the_jobs(self, stage: StoreStage) -> None:
        assert await stage.read_counts() == set()
        await populate(stage)
        assert await stage.read_counts() == await stage.count_jobs()
        await stage.sweeps.expire_tickets(None)
        stage.clock.advance(MINUTE * 3)
        await stage.sweeps.promote(3)
        await stage.sweeps.reclaim(2)
        await stage.sweeps.expire(1)
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_oldest_due_names_the_longest_wait_of_each_queue(self, stage: StoreStage) -> None:
        assert await stage.store.oldest_due() == {}
        start = stage.clock.now()
        await stage.submit(queue="a", ticketed=True)
        stage.clock.advance(SECOND)
        await stage.submit(queue="b", priority=2)
        stage.clock.advance(SECOND)
        await stage.submit(queue="a")
        await stage.submit(queue="b", priority=9)
        await stage.submit(queue="c", delay=MINUTE)
        await stage.run_job(queue="d")
        assert await stage.store.oldest_due() == {"a": start, "b": start + SECOND}

    async def test_what_falls_due_is_told_earliest_first(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        for queue, minutes in (("a", 3), ("b", 1), ("a", 2), ("c", 9)):
            await stage.submit(queue=queue, delay=MINUTE * minutes)
        await stage.submit(queue="due")
        expected = [("b", now + MINUTE), ("a", now + MINUTE * 2), ("a", now + MINUTE * 3)]
        assert await stage.sweeps.due_before(now + MINUTE * 9, 9) == expected
        assert await stage.sweeps.due_before(now + MINUTE * 9, 2) == expected[:2]
        assert await stage.sweeps.due_before(now + MINUTE, 9) == []
        stage.clock.advance(MINUTE)
        await stage.sweeps.promote(9)
        assert await stage.sweeps.due_before(now + MINUTE * 9, 9) == expected[1:]

    async def test_workers_hold_the_jobs_that_they_run(self, stage: StoreStage) -> None:
        assert await stage.sweeps.running_by_worker() == {}
        jobs = [(await stage.submit(ticketed=number % 2 == 0)).id for number in range(4)]
        first, _, _ = await stage.claim(*jobs[:3], worker="w1")
        await stage.claim(jobs[3], worker="w2")
        assert await stage.sweeps.running_by_worker() == {"w1": 3, "w2": 1}
        await stage.settle(Lease(first.job, first.fence))
        stage.clock.advance(MINUTE)
        assert await stage.sweeps.running_by_worker() == {"w1": 2, "w2": 1}
        await stage.sweeps.reclaim(9)
        assert await stage.sweeps.running_by_worker() == {}

    async def test_a_log_is_read_by_position(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        lines = [LogLine(stage.clock.now(), "stdout", f"line {number}", 1) for number in range(5)]
        assert await stage.store.append_log(lease, lines[:2], 999)
        assert await stage.store.append_log(lease, lines[2:], 999)
        first, position = await stage.store.read_log(lease.job, 0, 3)
        rest, end = await stage.store.read_log(lease.job, position, 9)
        assert first + rest == lines
        assert await stage.store.read_log(lease.job, end, 9) == ([], end)

    async def test_a_log_stops_growing_at_its_cap(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        lines = [LogLine(stage.clock.now(), "stdout", "x" * 10) for _ in range(9)]
        assert await stage.store.append_log(lease, lines, 35)
        assert await stage.store.append_log(lease, lines, 35)
        kept, _ = await stage.store.read_log(lease.job, 0, 99)
        assert len(kept) == 4

    async def test_lines_that_are_sent_again_are_kept_once(self, stage: StoreStage) -> None:
        """As by a worker that heard no answer; more lines may have come to them meanwhile. Each attempt counts anew."""
        lease = await stage.run_job()
        lines = [LogLine(stage.clock.now(), "stdout", "same") for _ in range(6)]
        assert await stage.store.append_log(lease, lines[:2], 999, 0)
        assert await stage.store.append_log(lease, lines[:2], 999, 0)
        assert await stage.store.append_log(lease, lines[:4], 999, 0)
        assert await stage.store.append_log(lease, lines[:2], 999, 0)
        assert await stage.store.append_log(lease, lines[:2], 999, 4)
        assert len((await stage.store.read_log(lease.job, 0, 99))[0]) == 6
        await stage.store.release([lease])
        again = await stage.claim_again(lease.job)
        assert await stage.store.append_log(again, lines[:2], 999, 0)
        assert len((await stage.store.read_log(lease.job, 0, 99))[0]) == 8

    async def test_a_log_stops_growing_at_its_cap_however_often_lines_are_sent(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        lines = [LogLine(stage.clock.now(), "stdout", "x" * 10) for _ in range(9)]
        for _ in range(3):
            assert await stage.store.append_log(lease, lines, 35, 0)
        assert len((await stage.store.read_log(lease.job, 0, 99))[0]) == 4

    async def test_a_lost_fence_writes_no_log(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        line = LogLine(stage.clock.now(), "stdout", "late")
        assert not await stage.store.append_log(Lease(lease.job, lease.fence + 1), [line], 99)
        assert not await stage.store.append_log(Lease(stage.unknown(), 1), [line], 99)
        await stage.settle(lease)
        assert not await stage.store.append_log(lease, [line], 99)
        assert await stage.store.read_log(lease.job, 0, 9) == ([], 0)

    async def test_reads_see_every_move_that_returned(self, stage: StoreStage) -> None:
        async def submit_and_read() -> None:
            job = await stage.submit()
            assert await stage.job(job.id) == job

        await asyncio.gather(*(submit_and_read() for _ in range(50)))


async def populate(stage: StoreStage) -> None:
    """Some jobs of several types, queues and tags, in every state."""
    rng = random.Random(11)
    for number in range(60):
        fields: dict[str, Any] = {
            "type": rng.choice(["mail", "scan"]),
            "queue": rng.choice(["a", "b"]),
            "tags": tuple(rng.sample(["red", "blue", "gold"], rng.randrange(3))),
        }
        match number % 8:
            case 0:
                await stage.submit(**fields, delay=MINUTE)
            case 1:
                await stage.submit(**fields, ticketed=True)
            case 2:
                await stage.submit(**fields)
            case 3:
                await stage.run_job(**fields)
            case 4 | 5:
                await stage.end_job(**fields)
            case 6:
                await stage.end_job(rng.choice([State.FAILED, State.CANCELLED]), **fields)
            case _:
                await stage.submit(**fields, expires_at=stage.clock.now())
                await stage.sweeps.expire(1)


def every_filter() -> list[JobFilter]:
    return [
        JobFilter(type_name, state, queue, tag)
        for type_name in (None, "mail", "scan", "none")
        for state in (None, *State)
        for queue in (None, "a", "none")
        for tag in (None, "red", "none")
    ]


def matches(job: Job, where: JobFilter) -> bool:
    return (
        where.type in (None, job.type)
        and where.state in (None, job.state)
        and where.queue in (None, job.queue)
        and (where.tag is None or where.tag in job.tags)
    )
