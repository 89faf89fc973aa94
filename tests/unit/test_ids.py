"""Job ids are UUIDv7 that sort by time and name their shard."""

import random
import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.clock import from_millis, to_millis
from penstock.model.errors import Invalid
from penstock.model.ids import (
    SERIES_MAX,
    SHARDS_MAX,
    JobId,
    Series,
    ShardId,
    created_at,
    from_bytes,
    from_packed,
    new_job_id,
    parse_job_id,
    place_in_series,
    shard_of,
    shards_of,
    to_bytes,
    to_packed,
)

YEAR_2200 = to_millis(datetime(2200, 1, 1, tzinfo=UTC))

millis = st.integers(0, YEAR_2200)
shards = st.integers(0, SHARDS_MAX - 1).map(ShardId)
seeds = st.integers(0, 2**32).map(random.Random)


@given(millis, shards, seeds)
@example(0, ShardId(0), random.Random(0))
@example(YEAR_2200, ShardId(SHARDS_MAX - 1), random.Random(0))
def test_an_id_is_an_ordinary_uuid_of_version_7(now: int, shard: ShardId, rng: random.Random) -> None:
    job = new_job_id(now, shard, rng)
    value = uuid.UUID(job)
    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert str(value) == job


@given(millis, shards, seeds)
def test_an_id_tells_its_shard_and_its_time(now: int, shard: ShardId, rng: random.Random) -> None:
    job = new_job_id(now, shard, rng)
    assert shard_of(job) == shard
    assert created_at(job) == from_millis(now)


@given(millis, millis, shards, shards, seeds)
def test_ids_sort_by_time(one: int, two: int, here: ShardId, there: ShardId, rng: random.Random) -> None:
    first, second = new_job_id(one, here, rng), new_job_id(two, there, rng)
    if one != two:
        assert (first < second) == (one < two)
        assert (to_bytes(first) < to_bytes(second)) == (one < two)


def test_ids_of_one_millisecond_and_shard_differ() -> None:
    rng = random.Random(1)
    made = {new_job_id(1_800_000_000_000, ShardId(3), rng) for _ in range(10_000)}
    assert len(made) == 10_000


@given(millis, shards, seeds)
def test_bytes_and_text_are_the_same_id(now: int, shard: ShardId, rng: random.Random) -> None:
    job = new_job_id(now, shard, rng)
    assert len(to_bytes(job)) == 16
    assert to_bytes(job) == uuid.UUID(job).bytes
    assert from_bytes(to_bytes(job)) == job


@given(millis, shards, seeds)
def test_an_id_is_read_however_it_is_written(now: int, shard: ShardId, rng: random.Random) -> None:
    job = new_job_id(now, shard, rng)
    for written in (job, job.upper(), job.replace("-", ""), f"{{{job}}}", f"urn:uuid:{job}"):
        assert parse_job_id(written) == job


@given(st.text())
@example("")
@example("0190a6e2-0000-7000-8000-00000000000")
@example("0190a6e2-0000-7000-8000-00000000000g")
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not a job id"):
        parse_job_id(text)


@given(st.uuids())
@example(uuid.UUID("0190a6e2-0000-4000-8000-000000000000"))
@example(uuid.UUID("0190a6e2-0000-7000-0000-000000000000"))
def test_a_uuid_of_another_version_is_refused(value: uuid.UUID) -> None:
    if value.version != 7:
        with pytest.raises(Invalid, match="not 7"):
            parse_job_id(str(value))


def test_a_known_id_reads_as_it_always_did() -> None:
    """Ids are kept for years: their layout may not change."""
    job = JobId("01a3185c-5000-7abc-8000-000000000001")
    assert shard_of(job) == 0xABC
    assert created_at(job) == from_millis(0x01A3185C5000)


@given(st.lists(st.builds(new_job_id, millis, shards, seeds)))
def test_many_ids_are_packed_as_each_by_itself(jobs: list[JobId]) -> None:
    assert to_packed(jobs) == b"".join(map(to_bytes, jobs))
    assert list(from_packed(to_packed(jobs))) == jobs
    assert shards_of(jobs) == {shard_of(job) for job in jobs}


places = st.lists(st.integers(0, SERIES_MAX - 1), min_size=2, max_size=20, unique=True).map(sorted)


@given(millis, shards, seeds, places)
@example(YEAR_2200, ShardId(SHARDS_MAX - 1), random.Random(0), [0, SERIES_MAX - 1])
def test_a_series_is_told_from_any_of_its_ids(now: int, shard: ShardId, rng: random.Random, chosen: list[int]) -> None:
    jobs = Series.new(now, shard, rng).ids(chosen)
    assert [parse_job_id(job) for job in jobs] == jobs == sorted(jobs)
    assert [place_in_series(job) for job in jobs] == chosen
    assert {shard_of(job) for job in jobs} == {shard}
    assert {created_at(job) for job in jobs} == {from_millis(now)}
    assert all(Series(job).ids(chosen) == jobs for job in jobs)
