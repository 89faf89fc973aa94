"""Job ids: ordinary UUIDv7, whose 12 `rand_a` bits name the shard that keeps the job.

Sortable by the time of submission, and a read finds its shard without asking anyone.
"""

import random
import uuid
from datetime import datetime
from typing import NewType

from penstock.model.errors import Invalid
from penstock.model.timing import from_millis

JobId = NewType("JobId", str)
ShardId = NewType("ShardId", int)

SHARDS_MAX = 1 << 12
_VERSION_AND_VARIANT = (7 << 76) | (2 << 62)


def new_job_id(now_millis: int, shard: ShardId, chance: random.Random) -> JobId:
    """A fresh id. Ids of one shard and one millisecond differ by 62 random bits."""
    value = (now_millis << 80) | _VERSION_AND_VARIANT | (shard << 64) | chance.getrandbits(62)
    text = f"{value:032x}"
    return JobId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


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
    return ShardId(int(job[15:18], 16))


def created_at(job: JobId) -> datetime:
    """When the id was made, to the millisecond."""
    return from_millis(int(job[:8] + job[9:13], 16))


def to_bytes(job: JobId) -> bytes:
    return bytes.fromhex(job.replace("-", ""))


def from_bytes(raw: bytes) -> JobId:
    text = raw.hex()
    return JobId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
