"""Pages of many shards merged into one, newest first, with a cursor that keeps a position in each shard."""

import base64
import binascii
import heapq
from collections.abc import Iterator, Mapping
from operator import attrgetter

import msgspec
from msgspec import Struct

from penstock.model.errors import Invalid
from penstock.model.ids import ShardId
from penstock.model.job import Job, Page

Positions = Mapping[ShardId, str | None]
"""The cursor to go on behind in each shard; None: that shard is finished. A shard not named: from the start."""

_decoder = msgspec.msgpack.Decoder(dict[int, str | None])


def encode(positions: Positions) -> str:
    """Positions as opaque text."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(positions)).rstrip(b"=").decode()


def decode(cursor: str | None) -> dict[ShardId, str | None]:
    """Positions from their text; Invalid for any other text."""
    if cursor is None:
        return {}
    try:
        raw = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), b"-_", validate=True)
        positions = {ShardId(number): position for number, position in _decoder.decode(raw).items()}
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        positions = {}
    if encode(positions) != cursor:
        raise Invalid(f"{cursor!r} is not a cursor: pass on the one of the page before, unchanged")
    return positions


class _PageStep(Struct, frozen=True):
    """A job of one shard, and where that shard goes on behind it."""

    job: Job
    shard: ShardId
    position: str | None


def merge(pages: Mapping[ShardId, Page], positions: Positions, limit: int, missing: tuple[ShardId, ...]) -> Page:
    """One page of the pages that the shards gave from these positions.

    Each shard keeps its own order; between shards the time of submission decides. A shard that gave nothing keeps its
    position. When only such shards have more, the cursor is None all the same: they are named as missing.
    """
    here = {**positions, **{shard: None for shard, page in pages.items() if not page.jobs and page.cursor is None}}
    jobs, behind = [], []
    newest_first = heapq.merge(*(_steps(*one) for one in sorted(pages.items())), key=_created_at, reverse=True)
    for step, _ in zip(newest_first, range(limit), strict=False):
        here[step.shard] = step.position
        jobs.append(step.job)
        behind.append(encode(here))
    more = any(here.get(shard, "") is not None for shard in pages)
    return Page(jobs, encode(here) if more else None, behind, missing)


_created_at = attrgetter("job.created_at")


def _steps(shard: ShardId, page: Page) -> Iterator[_PageStep]:
    last = len(page.jobs) - 1
    for index, job in enumerate(page.jobs):
        yield _PageStep(job, shard, page.cursor if index == last else page.behind[index])
