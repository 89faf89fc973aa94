"""Pages of many shards as one: newest first, with a cursor that keeps a place in each of them."""

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

Places = Mapping[ShardId, str | None]
"""Where to go on in each shard: behind this cursor; None: nowhere, it is finished. One not named: from the start."""

_decoder = msgspec.msgpack.Decoder(dict[int, str | None])


def written(places: Places) -> str:
    """Places as opaque text."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(places)).rstrip(b"=").decode()


def read(cursor: str | None) -> dict[ShardId, str | None]:
    """Places from their text; Invalid for any other text."""
    if cursor is None:
        return {}
    try:
        raw = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), b"-_", validate=True)
        places = {ShardId(number): place for number, place in _decoder.decode(raw).items()}
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        places = {}
    if written(places) != cursor:
        raise Invalid(f"{cursor!r} is not a cursor: pass on the one of the page before, unchanged")
    return places


class _PageStep(Struct, frozen=True):
    """A job of one shard, and where that shard goes on behind it."""

    job: Job
    shard: ShardId
    place: str | None


def merge(pages: Mapping[ShardId, Page], places: Places, limit: int, missing: tuple[ShardId, ...]) -> Page:
    """One page of the pages that the shards gave from these places.

    Each shard keeps its own order; between shards the time of submission decides. A shard that gave nothing keeps its
    place. When only such shards have more, the cursor is None all the same: they are named as missing.
    """
    here = {**places, **{shard: None for shard, page in pages.items() if not page.jobs and page.cursor is None}}
    jobs, behind = [], []
    newest_first = heapq.merge(*(_steps(*one) for one in sorted(pages.items())), key=_created_at, reverse=True)
    for step, _ in zip(newest_first, range(limit), strict=False):
        here[step.shard] = step.place
        jobs.append(step.job)
        behind.append(written(here))
    more = any(here.get(shard, "") is not None for shard in pages)
    return Page(jobs, written(here) if more else None, behind, missing)


_created_at = attrgetter("job.created_at")


def _steps(shard: ShardId, page: Page) -> Iterator[_PageStep]:
    last = len(page.jobs) - 1
    for index, job in enumerate(page.jobs):
        yield _PageStep(job, shard, page.cursor if index == last else page.behind[index])
