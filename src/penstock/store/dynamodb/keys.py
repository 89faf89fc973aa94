"""The keys of the table's items. Every key but a job's begins with the shard's prefix; an id names its shard itself.

    item                    pk                       sk
    the shard itself        <p>shard                 shard
    job head                <job id>                 job
    large params            <job id>                 params
    large outcome           <job id>                 end#<fence>
    chunk of a log          <job id>                 log#<position>
    idempotency key         <p>key#<sha256>          key
    jobs that expire        <p>expires               <expires_at>#<job id>
    jobs of a tag           <p>tag#<tag>             <sq>#<job id>
    sheet of a worker       <p>sheet                 <worker>
    counts of ended jobs    <p>ended                 <start>|<queue>|<type>|<state>

`<p>` is the shard's number in three hexadecimal digits and `#`. Part of the store are also, with keys of their own
modules: notices, roles, workers, schedules, ticks, relays and the journal.
"""

import hashlib
import itertools
import secrets
from collections.abc import Iterator

from penstock.model.ids import JobId, ShardId
from penstock.store.dynamodb.values import ItemKey

SEPARATOR = "|"
"""Between names; no name of a queue, type or worker contains it."""

AFTER_ALL = "~"
"""Above every digit and letter that follows a separator."""

JOB = "job"
PARAMS = "params"
LOG = "log#"


def shard_prefix(shard: ShardId) -> str:
    return f"{shard:03x}#"


def job_key(job: JobId) -> ItemKey:
    return ItemKey(job, JOB)


def params_key(job: JobId) -> ItemKey:
    return ItemKey(job, PARAMS)


def new_end_key(job: JobId, fence: int) -> ItemKey:
    """Of the large part of an outcome; unique, so that a refused settlement cannot replace one that was accepted."""
    return ItemKey(job, f"end#{fence}#{new_token()}")


def log_key(job: JobId, position: int) -> ItemKey:
    return ItemKey(job, f"{LOG}{position:012d}")


def idempotency_key(prefix: str, key: str) -> ItemKey:
    return ItemKey(f"{prefix}key#{hashlib.sha256(key.encode()).hexdigest()}", "key")


def millis_key(at: int) -> str:
    """An instant as text that sorts by time, up to the year 2999."""
    return f"{at:014d}"


class Sequence:
    """The order of age: instants of the shard's clock, then the order in this process, then the process.

    It is unique, so that it also tells whose insertion one was.
    """

    def __init__(self) -> None:
        self._process = secrets.token_hex(3)
        self._count: Iterator[int] = itertools.count()

    def next(self, now: int) -> str:
        return f"{millis_key(now)}{next(self._count) & 0xFFFFFF:06x}{self._process}"


def new_token() -> str:
    """What one write leaves in the item, to be recognised by."""
    return secrets.token_urlsafe(9)
