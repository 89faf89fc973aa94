"""Job ids: ordinary UUIDv7, whose 12 `rand_a` bits name the shard that keeps the job.

Sortable by the time of submission, and a read finds its shard from the id alone.
"""

import random
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from struct import Struct
from typing import NewType

from penstock.model.clock import from_millis
from penstock.model.errors import Invalid

JobId = NewType("JobId", str)
ShardId = NewType("ShardId", int)

ID_BYTES = 16
SHARDS_MAX = 1 << 12
_GROUPS = Struct("8s4s4s4s12s")
_VERSION_AND_VARIANT = (7 << 76) | (2 << 62)
_INDEX_BITS = 14
SERIES_MAX = 1 << _INDEX_BITS
"""The most ids of one series."""


def new_job_id(now_millis: int, shard: ShardId, rng: random.Random) -> JobId:
    """A fresh id. Ids of one shard and one millisecond differ by 62 random bits."""
    return _written((now_millis << 80) | _VERSION_AND_VARIANT | (shard << 64) | rng.getrandbits(62))


def first_id(at_millis: int) -> JobId:
    """The lowest id of that millisecond: above every id of the one before."""
    return _written(at_millis << 80)


class Series:
    """Consecutive ids of one shard, for the jobs of a batch: all of them follow from the id of one."""

    __slots__ = ("_lowest", "_prefix")

    def __init__(self, job: JobId) -> None:
        """The series that an id belongs to."""
        self._prefix = job[:-4]
        self._lowest = int(job[-4:], 16) & -SERIES_MAX

    @classmethod
    def new(cls, now_millis: int, shard: ShardId, rng: random.Random) -> "Series":
        """A fresh series. Series of one shard and one millisecond differ by 48 random bits."""
        return cls(new_job_id(now_millis, shard, rng))

    def ids(self, places: Iterable[int]) -> list[JobId]:
        """The ids of the jobs at these indexes of their batch."""
        return [JobId(f"{self._prefix}{self._lowest + place:04x}") for place in places]


def place_in_series(job: JobId) -> int:
    """The index in its batch of a job of a series."""
    return int(job[-4:], 16) & (SERIES_MAX - 1)


def parse_job_id(text: str) -> JobId:
    """The canonical form of an id a user typed; Invalid when it is not a UUIDv7."""
    try:
        value = uuid.UUID(text)
    except ValueError:
        raise Invalid(f"{text!r} is not a job id: expected a UUID such as 0190a6e2-…") from None
    if value.version != 7:
        raise Invalid(f"{text!r} is not a job id: it is a UUID of version {value.version}, not 7")
    return JobId(str(value))


def shard_of(job: JobId) -> ShardId:
    return _shard(job[15:18])


@cache
def _shard(digits: str) -> ShardId:
    """Cached: every move asks for each of its jobs, and there are few shards."""
    return ShardId(int(digits, 16))


def created_at(job: JobId) -> datetime:
    """When the id was made, to the millisecond."""
    return from_millis(int(job[:8] + job[9:13], 16))


def to_bytes(job: JobId) -> bytes:
    return bytes.fromhex(job.replace("-", ""))


def from_bytes(raw: bytes) -> JobId:
    return _hyphened(raw.hex())


def _written(value: int) -> JobId:
    return _hyphened(f"{value:032x}")


def _hyphened(text: str) -> JobId:
    return JobId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def shards_of(jobs: Iterable[JobId]) -> set[ShardId]:
    return {_shard(digits) for digits in {job[15:18] for job in jobs}}


def to_packed(jobs: Iterable[JobId]) -> bytes:
    """Many ids as bytes, one after the other."""
    return bytes.fromhex("".join(jobs).replace("-", ""))


def from_packed(raw: bytes) -> Iterator[JobId]:
    """The ids of packed bytes, parsed one by one as they are read."""
    return (JobId(b"-".join(groups).decode()) for groups in _GROUPS.iter_unpack(raw.hex().encode()))
