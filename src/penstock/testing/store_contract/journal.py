"""The journal: each move of a job is one event, written with it; readers get all of them, in the order of each job."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock.model.errors import Invalid
from penstock.model.ids import JobId
from penstock.model.job import Lease, Settlement
from penstock.model.journal import EventRetention, HistoryFilter
from penstock.model.lifecycle import Move, State
from penstock.testing.journal import JournalReader, Told
from penstock.testing.store_contract.schedules import apply, find, job_of, move_of, put, tick
from penstock.testing.store_contract.stage import KEEP, LEASE, MINUTE, SECOND, TICKET, OnStage, StoreStage

DAY = timedelta(days=1)
NEW = (Move.SUBMIT, None, State.QUEUED)
CLAIMED = (Move.CLAIM, State.QUEUED, State.RUNNING)
MARKED = (Move.CANCEL, State.RUNNING, State.RUNNING)


async def _promote(stage: StoreStage) -> JobId:
    job = await stage.submit(delay=SECOND)
    stage.clock.advance(SECOND)
    await stage.sweeps.promote(9)
    return job.id


async def _settle(stage: StoreStage, state: State, **fields: Any) -> JobId:
    lease = await stage.run_job()
    await stage.settle(lease, state, **fields)
    return lease.job


async def _release(stage: StoreStage, delay: timedelta | None = None) -> JobId:
    lease = await stage.run_job()
    await stage.store.release([lease], delay=delay)
    return lease.job


async def _reclaim(stage: StoreStage) -> JobId:
    job = await stage.submit()
    await stage.lose(job.id)
    return job.id


async def _cancel_running(stage: StoreStage, *forces: bool) -> JobId:
    lease = await stage.run_job()
    for force in forces:
        await stage.store.cancel([lease.job], force=force)
    return lease.job


async def _end_marked(stage: StoreStage, how: str) -> JobId:
    job = await _cancel_running(stage, False)
    lease = Lease(job, 1)
    if how == "settle":
        await stage.settle(lease, State.SCHEDULED, retry_in=SECOND)
    elif how == "release":
        await stage.store.release([lease])
    else:
        await stage.lose_claimed(lease)
    return job


async def _cancel_waiting(stage: StoreStage) -> JobId:
    job = await stage.submit()
    await stage.store.cancel([job.id])
    return job.id


async def _expire(stage: StoreStage) -> JobId:
    job = await stage.submit(expires_at=stage.clock.now() + SECOND)
    stage.clock.advance(SECOND)
    await stage.sweeps.expire(9)
    return job.id


async def _claim_next(stage: StoreStage) -> JobId:
    job = await stage.submit()
    await stage.claim_next({"mail": 1})
    return job.id


async def _poison(stage: StoreStage) -> JobId:
    job = await stage.submit()
    for _ in range(3):
        await stage.lose(job.id)
    return job.id


RUN = [NEW, CLAIMED]
WALKS = {
    "promote": (_promote, [(Move.SUBMIT, None, State.SCHEDULED), (Move.DISPATCH, State.SCHEDULED, State.QUEUED)]),
    "claim_next": (_claim_next, RUN),
    "succeed": (lambda stage: _settle(stage, State.SUCCEEDED), [*RUN, (Move.SETTLE, State.RUNNING, State.SUCCEEDED)]),
    "fail": (lambda stage: _settle(stage, State.FAILED), [*RUN, (Move.SETTLE, State.RUNNING, State.FAILED)]),
    "retry": (
        lambda stage: _settle(stage, State.SCHEDULED, retry_in=SECOND),
        [*RUN, (Move.SETTLE, State.RUNNING, State.SCHEDULED)],
    ),
    "release": (_release, [*RUN, (Move.RELEASE, State.RUNNING, State.QUEUED)]),
    "release later": (
        lambda stage: _release(stage, SECOND),
        [*RUN, (Move.RELEASE, State.RUNNING, State.SCHEDULED)],
    ),
    "reclaim": (_reclaim, [*RUN, (Move.RECLAIM, State.RUNNING, State.QUEUED)]),
    "poison": (
        _poison,
        [NEW, *[CLAIMED, (Move.RECLAIM, State.RUNNING, State.QUEUED)] * 2, CLAIMED,
         (Move.RECLAIM, State.RUNNING, State.FAILED)],
    ),
    "cancel a waiting job": (_cancel_waiting, [NEW, (Move.CANCEL, State.QUEUED, State.CANCELLED)]),
    "mark, and mark again": (lambda stage: _cancel_running(stage, False, False), [*RUN, MARKED]),
    "cancel by force": (
        lambda stage: _cancel_running(stage, False, True),
        [*RUN, MARKED, (Move.CANCEL, State.RUNNING, State.CANCELLED)],
    ),
    "retry a marked job": (
        lambda stage: _end_marked(stage, "settle"),
        [*RUN, MARKED, (Move.SETTLE, State.RUNNING, State.CANCELLED)],
    ),
    "release a marked job": (
        lambda stage: _end_marked(stage, "release"),
        [*RUN, MARKED, (Move.RELEASE, State.RUNNING, State.CANCELLED)],
    ),
    "reclaim a marked job": (
        lambda stage: _end_marked(stage, "reclaim"),
        [*RUN, MARKED, (Move.RECLAIM, State.RUNNING, State.CANCELLED)],
    ),
    "expire": (_expire, [NEW, (Move.EXPIRE, State.QUEUED, State.EXPIRED)]),
}  # fmt: skip
"""Every way through the lifecycle that writes an event, and the events."""


class JournalContract(OnStage):
    @pytest.fixture
    def reader(self, stage: StoreStage) -> JournalReader:
        return JournalReader(stage.store)

    @pytest.mark.parametrize("name", WALKS)
    async def test_each_move_is_one_event_with_the_next_version(
        self, stage: StoreStage, reader: JournalReader, name: str
    ) -> None:
        walk, expected = WALKS[name]
        job = await walk(stage)
        await reader.read()
        assert reader.moves(job) == expected
        reader.check(await stage.all_jobs())
        assert (await stage.job(job)).version == len(expected)
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_a_tick_and_the_job_that_yields_to_it_are_events(
        self, stage: StoreStage, reader: JournalReader
    ) -> None:
        old = await tick(stage, await put(stage))
        stage.clock.advance(MINUTE)
        read = await find(stage)
        new = job_of(stage, read)
        (answer,) = await apply(stage, move_of(read, [new], cancel=(old.id,)))
        await reader.read()
        created = (Move.TICK, None, State.QUEUED)
        assert reader.moves(old.id) == [created, (Move.CANCEL, State.QUEUED, State.CANCELLED)]
        assert reader.moves(new.id) == [created]
        reader.check(await stage.all_jobs())
        assert [event.version for event in (*answer.events, *answer.yielded)] == [1, 2]

    async def test_what_changes_no_state_is_no_event(self, stage: StoreStage, reader: JournalReader) -> None:
        waiting, lease = await stage.submit(), await stage.run_job()
        await reader.read()
        await stage.store.renew("w1", [lease], LEASE)
        await stage.store.retype([lease], "scan")
        await stage.dispatch({"mail": 9})
        stage.clock.advance(TICKET)
        await stage.expire_overdue_tickets()
        await stage.sweeps.expire_tickets(None)
        assert await reader.read() == []
        assert [job.version for job in (await stage.job(waiting.id), await stage.job(lease.job))] == [1, 2]

    async def test_a_move_that_is_refused_writes_nothing(self, stage: StoreStage, reader: JournalReader) -> None:
        key = (await stage.submit(key="k", fingerprint=b"a")).id
        lease = await stage.run_job()
        await stage.settle(lease)
        await reader.read()
        await stage.submit(key="k", fingerprint=b"a")
        await stage.submit(key="k", fingerprint=b"b")
        await stage.settle(lease, State.FAILED)
        await stage.store.release([lease])
        await stage.store.cancel([lease.job], force=True)
        assert await stage.claim(lease.job, stage.unknown()) == []
        with pytest.raises(Invalid):
            await stage.submit(priority=99)
        assert await reader.read() == []
        assert [(await stage.job(job)).version for job in (key, lease.job)] == [1, 3]

    async def test_an_event_tells_the_attempt_and_the_reason(self, stage: StoreStage, reader: JournalReader) -> None:
        lease = await stage.run_job()
        stage.clock.advance(SECOND)
        settled = await stage.settle(lease, State.FAILED, reason="no retry")
        other = await stage.end_job(State.FAILED)
        await reader.read()
        last = Told(3, Move.SETTLE, State.RUNNING, State.FAILED, 1, "no retry")
        assert reader.told[lease.job][-1] == last
        assert reader.told[other][-1] == last._replace(reason=None)
        assert settled.event is not None
        assert settled.event.version == 3
        entry = next(one for one in reader.entries if lease.job in one.jobs and one.move is Move.SETTLE)
        assert (entry.type, entry.queue, entry.at) == ("mail", "mail", stage.clock.now())

    async def test_answers_have_the_versions_of_the_journal(self, stage: StoreStage, reader: JournalReader) -> None:
        (submission,) = await stage.store.submit([stage.new()], TICKET)
        assert submission.event is not None
        job = submission.event.job
        (claim,) = await stage.claim(job)
        (mark,) = await stage.store.cancel([job])
        (given_back,) = await stage.store.release([Lease(job, claim.fence)])
        assert mark.job is not None
        assert mark.event is not None
        assert given_back.event is not None
        assert (submission.job.version, mark.job.version) == (1, 3)
        assert [submission.event.version, mark.event.version, given_back.event.version] == [1, 3, 4]
        scheduled, expiring = (
            await stage.submit(delay=SECOND),
            await stage.submit(expires_at=stage.clock.now() + SECOND),
        )
        stage.clock.advance(SECOND)
        events = [*await stage.sweeps.promote(9), *await stage.sweeps.expire(9)]
        assert [(event.job, event.version) for event in events] == [(scheduled.id, 2), (expiring.id, 2)]
        lost = await stage.run_job()
        stage.clock.advance(LEASE)
        assert [(event.job, event.version) for event in await stage.sweeps.reclaim(9)] == [(lost.job, 3)]
        await reader.read()
        reader.check(await stage.all_jobs())

    async def test_a_batch_of_many_lines_tells_each_job_once(self, stage: StoreStage, reader: JournalReader) -> None:
        lines = [(queue, kind) for queue in ("a", "b") for kind in ("mail", "scan")]
        news = [stage.new(queue=queue, type=kind) for queue, kind in lines * 100]
        await stage.store.submit(news, TICKET)
        claims = await stage.claim(*(new.id for new in news))
        states = [State.SUCCEEDED, State.FAILED]
        await stage.store.settle(
            [Settlement(job=one.job, fence=one.fence, state=states[place % 3 == 0]) for place, one in enumerate(claims)]
        )
        await reader.read()
        reader.check(await stage.all_jobs())
        assert {len(told) for told in reader.told.values()} == {3}
        lines_told = {(entry.queue, entry.type) for entry in reader.entries}
        assert lines_told == set(lines)
        by_id = {new.id: (new.queue, new.type) for new in news}
        assert all(by_id[job] == (entry.queue, entry.type) for entry in reader.entries for job in entry.jobs)

    async def test_events_of_a_job_are_in_order_whatever_is_committed_together(
        self, stage: StoreStage, reader: JournalReader
    ) -> None:
        jobs = [answer.id for answer in await stage.store.submit([stage.new() for _ in range(20)], TICKET)]
        for _ in range(5):
            claims = await stage.claim(*jobs)
            leases = [Lease(claim.job, claim.fence) for claim in claims]
            await asyncio.gather(
                stage.claim(*jobs),
                stage.store.release(leases[:10]),
                stage.store.cancel(jobs[:2]),
                stage.claim(*jobs[::-1]),
                stage.store.release(leases[10:], suspects=True),
                stage.claim(*jobs),
            )
            stage.clock.advance(LEASE)
            await stage.sweeps.reclaim(99)
        await reader.read()
        reader.check(await stage.all_jobs())

    async def test_pages_of_any_size_tell_the_same(self, stage: StoreStage) -> None:
        for _ in range(4):
            await stage.store.submit([stage.new() for _ in range(7)], TICKET)
            await stage.end_job()
        whole, small = JournalReader(stage.store), JournalReader(stage.store)
        await whole.read(1000)
        await small.read(1)
        assert small.entries == whole.entries
        shard = stage.store.shards()[0]
        page = await shard.read_journal(0, 1)
        assert len(page.entries) == 1
        assert page.head == await shard.number_entries()
        assert (await shard.read_journal(page.head, 9)).entries == []

    async def test_an_instant_has_a_number(self, stage: StoreStage) -> None:
        shard = stage.store.shards()[0]
        assert await shard.find_number(stage.clock.now()) == 0
        heads = [0]
        for _ in range(5):
            for _ in range(4 * len(stage.store.shards())):
                await stage.submit()
            heads.append(await shard.number_entries())
            assert await shard.find_number(stage.clock.now()) == heads[-2]
            stage.clock.advance(SECOND)
            assert await shard.find_number(stage.clock.now()) == heads[-1]
        found = [await shard.find_number(stage.clock.now() - SECOND * ago) for ago in range(6)]
        assert found == heads[::-1]

    async def test_old_entries_go_and_their_numbers_are_not_given_again(self, stage: StoreStage) -> None:
        shard = stage.store.shards()[0]
        await self._submit_to_all(stage)
        old = await shard.number_entries()
        stage.clock.advance(DAY)
        await self._submit_to_all(stage)
        assert await shard.number_entries() > old
        stage.clock.advance(DAY)
        await shard.prune_journal(EventRetention(events=DAY * 1.5), 1000)
        page = await shard.read_journal(0, 1000)
        assert (page.oldest, page.entries[0].number) == (old + 1, old + 1)
        assert await shard.find_number(stage.clock.now() - DAY * 9) == old
        await shard.prune_journal(EventRetention(events=DAY / 2), 1000)
        gone = await shard.read_journal(0, 1000)
        assert (list(gone.entries), gone.oldest, gone.head) == ([], page.head + 1, page.head)
        assert await shard.find_number(stage.clock.now()) == page.head
        await self._submit_to_all(stage)
        assert await shard.number_entries() > page.head
        assert (await shard.read_journal(page.head, 1000)).oldest == page.head + 1

    async def test_pruning_is_bounded(self, stage: StoreStage) -> None:
        shard = stage.store.shards()[0]
        for _ in range(5):
            await self._submit_to_all(stage)
            stage.clock.advance(SECOND)
        head = await shard.number_entries()
        stage.clock.advance(DAY)
        keep = EventRetention(events=DAY)
        assert await shard.prune_journal(keep, 2) > 0
        assert (await shard.read_journal(0, 1000)).oldest == 3
        while await shard.prune_journal(keep, 2):
            pass
        assert (await shard.read_journal(0, 1000)).oldest == head + 1

    async def test_a_prune_is_no_event(self, stage: StoreStage, reader: JournalReader) -> None:
        await stage.end_job()
        await reader.read()
        stage.clock.advance(DAY)
        await stage.prune()
        assert await stage.all_jobs() == []
        assert await reader.read() == []
        job = await stage.submit()
        await reader.read()
        assert reader.moves(job.id) == [NEW]

    async def _submit_to_all(self, stage: StoreStage) -> None:
        """At least one job on each shard."""
        missing = {shard.shard for shard in stage.store.shards()}
        while missing:
            (answer,) = await stage.store.submit([stage.new()], TICKET)
            missing -= {shard.shard for shard in stage.store.shards() if await shard.get([answer.id]) != [None]}


class SilentStoreContract(OnStage):
    """Of a store with `keep_events` off: nothing is written about moves but versions and counts."""

    async def test_without_events_nothing_is_written_and_counts_are_exact(self, stage: StoreStage) -> None:
        job = await stage.end_job()
        other = await stage.submit()
        await stage.store.cancel([other.id])
        assert (await stage.job(job)).version == 3
        stage.clock.advance(KEEP.succeeded)
        await stage.prune()
        stage.clock.advance(DAY if stage.store.capabilities.rows_expire else KEEP.succeeded / 2)
        assert await stage.read_counts() == await stage.count_jobs()
        for shard in stage.store.shards():
            assert not shard.keeps_events
            assert await shard.number_entries() == 0
            page = await shard.read_journal(0, 9)
            assert (list(page.entries), page.oldest, page.head) == ([], 1, 0)
            history = await shard.read_history(HistoryFilter(stage.clock.now() - DAY, stage.clock.now()))
            assert list(history.rows) == []
