"""Pages of many shards as one: every job once, whatever is added and whichever shard does not answer for a while."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import Invalid
from penstock.model.ids import JobId, ShardId
from penstock.model.job import Job, Page
from penstock.model.lifecycle import State
from penstock.model.retry import Retry
from penstock.orchestrator.cursor import decode, encode, merge

START = datetime(2030, 1, 1, tzinfo=UTC)
SHARDS = tuple(ShardId(number) for number in range(3))


class Shelves:
    """Three shards as lists of jobs, oldest first; a cursor is how many older ones there are."""

    def __init__(self) -> None:
        self.jobs: dict[ShardId, list[Job]] = {shard: [] for shard in SHARDS}
        self.now = START

    def add(self, shard: ShardId) -> None:
        number = len(self.jobs[shard])
        job = Job(
            id=JobId(f"{shard}/{number}"),
            type="mail",
            queue="mail",
            state=State.QUEUED,
            retry=Retry(),
            due_at=self.now,
            created_at=self.now,
        )
        self.jobs[shard].append(job)

    def page(self, shard: ShardId, position: str | None, limit: int) -> Page:
        older = self.jobs[shard] if position is None else self.jobs[shard][: int(position)]
        jobs = older[::-1][:limit]
        behind = [str(len(older) - taken) for taken in range(1, len(jobs) + 1)]
        return Page(jobs, behind[-1] if len(older) > limit else None, behind)

    def all(self, cursor: str | None, limit: int, missing: set[ShardId]) -> Page:
        positions = decode(cursor)
        asked = [shard for shard in SHARDS if shard not in missing and positions.get(shard, "") is not None]
        pages = {shard: self.page(shard, positions.get(shard), limit) for shard in asked}
        return merge(pages, positions, limit, tuple(sorted(missing)))


additions = st.lists(st.tuples(st.sampled_from(SHARDS), st.integers(0, 2)), max_size=20)
absences = st.lists(st.sets(st.sampled_from(SHARDS), max_size=2), max_size=12)


def fill(shelves: Shelves, added: list[tuple[ShardId, int]]) -> None:
    for shard, later in added:
        shelves.now += timedelta(seconds=later)
        shelves.add(shard)


@given(before=additions, meanwhile=st.lists(additions, max_size=8), absent=absences, limit=st.integers(1, 5))
def test_a_job_that_is_there_from_the_start_is_seen_exactly_once(
    before: list[tuple[ShardId, int]],
    meanwhile: list[list[tuple[ShardId, int]]],
    absent: list[set[ShardId]],
    limit: int,
) -> None:
    shelves = Shelves()
    fill(shelves, before)
    there = {job.id for jobs in shelves.jobs.values() for job in jobs}
    seen: list[JobId] = []
    cursor, missing = None, set[ShardId]()
    while True:
        missing = absent.pop() if absent else set()
        page = shelves.all(cursor, limit, missing)
        assert len(page.jobs) <= limit
        assert page.missing == tuple(sorted(missing))
        seen += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
        fill(shelves, meanwhile.pop() if meanwhile else [])
    assert len(seen) == len(set(seen))
    unseen = there - set(seen)
    assert {ShardId(int(job[0])) for job in unseen} <= missing


@given(added=additions, limit=st.integers(1, 9))
def test_with_all_shards_there_pages_are_newest_first_and_begin_behind_any_job(
    added: list[tuple[ShardId, int]], limit: int
) -> None:
    shelves = Shelves()
    fill(shelves, added)
    page = shelves.all(None, 99, set())
    times = [job.created_at for job in page.jobs]
    assert (times, len(times), page.cursor) == (sorted(times, reverse=True), len(added), None)
    for number, cursor in enumerate(page.behind, 1):
        assert list(shelves.all(cursor, limit, set()).jobs) == page.jobs[number : number + limit]


def test_when_only_missing_shards_have_more_the_list_ends_and_names_them() -> None:
    shelves = Shelves()
    fill(shelves, [(ShardId(0), 0), (ShardId(1), 0)])
    page = shelves.all(None, 9, {ShardId(1)})
    assert ([job.id for job in page.jobs], page.cursor, page.missing) == (["0/0"], None, (1,))


@pytest.mark.parametrize(
    "cursor", ["", "?", "-1", "nonsense", "1.5", "9" * 40, "gA==", "ä", encode({ShardId(0): "x"})[:-1]]
)
def test_what_is_not_a_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Invalid, match="is not a cursor"):
        decode(cursor)


@given(positions=st.dictionaries(st.integers(0, 4095).map(ShardId), st.none() | st.text()))
def test_places_survive_being_written(positions: dict[ShardId, str | None]) -> None:
    assert decode(encode(positions)) == positions
