"""The history: what every move did, summed by spans of time, so that the counts of any instant follow from it."""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from penstock.model.job import Lease
from penstock.model.journal import NEWEST_SPAN, EventRetention, HistoryFilter, HistoryRow
from penstock.model.lifecycle import Move, State
from penstock.testing.journal import Line, depths, history_lines, lines_of, read_all_history
from penstock.testing.store_contract.stage import MINUTE, SECOND, TICKET, OnStage, StoreStage

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class HistoryContract(OnStage):
    async def test_the_moves_add_up_to_the_counts(self, stage: StoreStage) -> None:
        await _live(stage)
        history = await read_all_history(stage.store)
        assert lines_of(history.counts) == await _lines(stage)
        assert depths(history) == {}

    async def test_moves_after_the_last_numbering_are_not_forgotten(self, stage: StoreStage) -> None:
        await stage.submit()
        assert depths(await read_all_history(stage.store)) == {}
        await stage.submit()
        history = await read_all_history(stage.store)
        assert depths(history) == {}
        assert lines_of(history.counts) == {("mail", "mail", State.QUEUED): 2}
        assert sum(row.jobs for row in history.rows) == 2

    async def test_a_claim_tells_the_wait_and_a_settle_the_run(self, stage: StoreStage) -> None:
        job = await stage.submit()
        stage.clock.advance(SECOND)
        (claim,) = await stage.claim(job.id)
        stage.clock.advance(timedelta(milliseconds=250))
        await stage.settle(Lease(claim.job, claim.fence))
        rows = {row.move: row for row in (await read_all_history(stage.store)).rows}
        assert (rows["claim"].bucket, rows["claim"].jobs, rows["claim"].millis) == (10, 1, 1000)
        assert (rows["settle"].bucket, rows["settle"].jobs, rows["settle"].millis) == (8, 1, 250)
        assert (rows["submit"].bucket, rows["submit"].millis) == (None, 0)

    async def test_a_bucket_holds_the_jobs_of_one_power_of_two(self, stage: StoreStage) -> None:
        for wait in (0, 1, 2, 3, 900, 1000):
            job = await stage.submit()
            stage.clock.advance(timedelta(milliseconds=wait))
            await stage.claim(job.id)
        found: Counter[int | None] = Counter()
        for row in (await read_all_history(stage.store)).rows:
            if row.move == Move.CLAIM:
                found[row.bucket] += row.jobs
        assert found == {0: 1, 1: 1, 2: 2, 10: 2}

    async def test_spans_begin_at_whole_tens_of_seconds(self, stage: StoreStage) -> None:
        stage.clock.advance(SECOND * 17)
        await stage.submit()
        (row,) = (await read_all_history(stage.store)).rows
        assert (row.at, row.span) == (stage.clock.now() - SECOND * 7, NEWEST_SPAN)

    async def test_the_filter_names_a_time_a_queue_and_a_type(self, stage: StoreStage) -> None:
        start = stage.clock.now()
        for kind, queue in (("mail", "a"), ("scan", "a"), ("mail", "b")):
            await stage.submit(type=kind, queue=queue)
        stage.clock.advance(MINUTE)
        await stage.submit(type="mail", queue="a")

        async def lines(where: HistoryFilter) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
            found = await read_all_history(stage.store, where)
            return {(row.queue, row.type) for row in found.rows}, {(one.queue, one.type) for one in found.counts}

        now = stage.clock.now()
        everything = {("a", "mail"), ("a", "scan"), ("b", "mail")}
        assert await lines(HistoryFilter(start, now)) == (everything, everything)
        assert await lines(HistoryFilter(start + SECOND * 9, now)) == (everything, everything)
        assert await lines(HistoryFilter(start + SECOND * 10, now)) == ({("a", "mail")}, everything)
        assert await lines(HistoryFilter(start, start)) == (everything, everything)
        assert await lines(HistoryFilter(start, now, queue="a", type="scan")) == ({("a", "scan")}, {("a", "scan")})

    async def test_prunes_and_retypes_are_dated(self, stage: StoreStage) -> None:
        lease = await stage.run_job()
        await stage.store.retype([lease], "scan")
        await stage.settle(lease)
        await stage.end_job(State.FAILED)
        before = await read_all_history(stage.store)
        assert depths(before) == {}
        stage.clock.advance(DAY)
        if stage.store.capabilities.rows_expire:
            assert await stage.prune() == 0
            return
        assert await stage.prune() == 2
        after = await read_all_history(stage.store)
        assert (list(after.counts), depths(after)) == ([], {})
        pruned = {(row.type, row.before, row.after, row.jobs) for row in after.rows if row.move == "prune"}
        assert pruned == {("scan", State.SUCCEEDED, None, 1), ("mail", State.FAILED, None, 1)}
        assert depths(after, stage.clock.now()) == lines_of(before.counts)

    async def test_counts_of_the_past_follow_from_those_of_now(self, stage: StoreStage) -> None:
        seen: dict[int, dict[Line, int]] = {}
        start = stage.clock.now()
        for number in range(6):
            await _live(stage)
            stage.clock.advance(NEWEST_SPAN - (stage.clock.now() - start) % NEWEST_SPAN)
            seen[number] = await _lines(stage)
            seen_at = stage.clock.now()
            assert depths(await read_all_history(stage.store), seen_at) == seen[number]

    async def test_old_spans_become_coarser_without_changing_a_sum(self, stage: StoreStage) -> None:
        for age in (HOUR * 60, HOUR * 30, HOUR):
            for _ in range(3):
                await _live(stage)
                stage.clock.advance(SECOND * 45)
            stage.clock.advance(age)
        before = await read_all_history(stage.store)
        await self._prune(stage, EventRetention())
        after = await read_all_history(stage.store)
        assert _sums(before.rows) == _sums(after.rows)
        assert len(after.rows) < len(before.rows)
        assert depths(after) == {}
        assert {row.span for row in after.rows} == {NEWEST_SPAN, MINUTE, HOUR}
        assert all(row.at.timestamp() % row.span.total_seconds() == 0 for row in after.rows)
        for row in after.rows:
            age = stage.clock.now() - row.at
            assert row.span == (NEWEST_SPAN if age < HOUR * 2 else MINUTE if age < HOUR * 48 else HOUR)

    async def test_folding_in_small_steps_changes_no_sum(self, stage: StoreStage) -> None:
        for _ in range(8):
            await _live(stage)
            stage.clock.advance(SECOND * 10)
        before = await read_all_history(stage.store)
        stage.clock.advance(DAY * 3)
        for _ in range(500):
            for shard in stage.store.shards():
                await shard.prune_journal(EventRetention(), 5)
            after = await read_all_history(stage.store)
            assert _sums(after.rows) == _sums(before.rows)
            if {row.span for row in after.rows} == {HOUR}:
                break
        else:
            raise AssertionError("the history is not folded")

    async def test_the_history_ends_at_its_retention(self, stage: StoreStage) -> None:
        await stage.end_job()
        stage.clock.advance(DAY * 10)
        await stage.submit()
        await self._prune(stage, EventRetention(history=DAY * 9))
        history = await read_all_history(stage.store)
        assert {row.move for row in history.rows} == {"submit"}
        assert lines_of(history.counts) == await _lines(stage)

    async def _prune(self, stage: StoreStage, keep: EventRetention) -> None:
        for shard in stage.store.shards():
            while await shard.prune_journal(keep, 100):
                pass


async def _lines(stage: StoreStage) -> dict[Line, int]:
    """The jobs themselves, counted as the history counts them."""
    return history_lines(stage.store, lines_of(await stage.count_jobs()))


async def _live(stage: StoreStage) -> None:
    """Jobs that go through most moves, some of which wait or run when it returns."""
    await stage.store.submit([stage.new(queue=queue) for queue in "aabb"], TICKET)
    await stage.submit(delay=SECOND)
    await stage.submit(expires_at=stage.clock.now() + SECOND)
    await stage.store.cancel([(await stage.submit()).id])
    stage.clock.advance(SECOND)
    await stage.sweeps.expire(9)
    await stage.sweeps.promote(9)
    claims = await stage.claim_next({"a": 3, "b": 1})
    first, *rest = [Lease(one.job, one.fence) for one in claims]
    stage.clock.advance(SECOND / 2)
    await stage.settle(first)
    for lease, state in zip(rest, (State.FAILED, State.SCHEDULED), strict=False):
        await stage.settle(lease, state, retry_in=MINUTE if state is State.SCHEDULED else None)


def _sums(rows: Iterable[HistoryRow]) -> Counter[tuple[object, ...]]:
    """Jobs and milliseconds by everything but time."""
    found: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        key = (row.queue, row.type, row.move, row.before, row.after, row.bucket)
        found[*key, "jobs"] += row.jobs
        found[*key, "millis"] += row.millis
    return found
