"""Whether workers for a queue are on the way, as far as the autoscaler that acts has said."""

from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec import Struct

from penstock.engine.catalog import Reading
from penstock.model.fleet_readings import Runs
from penstock.model.job import Job
from penstock.model.notices import NoticeKind
from penstock.model.timing import Instant

FRESH = timedelta(seconds=30)
"""An autoscaler that has said nothing for longer is not counted on."""


class _Aim(Struct, frozen=True):
    desired: int
    at: Instant


class _Said(Struct, frozen=True):
    """A fleet's record, as far as it matters here."""

    latest: _Aim
    queues: tuple[str, ...] | None = None
    except_queues: tuple[str, ...] = ()
    runs: Runs | None = None

    def promises(self, queue: str, now: datetime) -> bool:
        served = queue not in self.except_queues if self.queues is None else queue in self.queues
        return served and self.latest.desired > 0 and now - self.latest.at <= FRESH


def is_coming(job: Job, reading: Reading, now: datetime) -> bool:
    """Whether the fleet that serves a job's queue should have workers by now that run its type."""
    names = reading.handled_as(job.type)
    declared_at = max((reading.types[name].declared_at for name in names if name in reading.types), default=None)
    records = [
        one.value for one in reading.notices.values() if one.kind == NoticeKind.FLEET_RECORD and one.value is not None
    ]
    return any(
        said.promises(job.queue, now) and (said.runs is None or not said.runs.lacks(job.type, names, declared_at))
        for said in map(_decoded, records)
        if said is not None
    )


@lru_cache(maxsize=256)
def _decoded(value: bytes) -> _Said | None:
    try:
        return msgspec.json.decode(value, type=_Said)
    except msgspec.ValidationError:
        return None
