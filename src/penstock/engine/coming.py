"""Whether workers for a job are on the way, as far as the autoscalers that act have said."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import lru_cache

import msgspec
from msgspec import Struct

from penstock.engine.catalog import CatalogReading
from penstock.model.declarations import DeclaredType
from penstock.model.fleet_readings import Runs
from penstock.model.job import Job
from penstock.model.notices import NoticeKind
from penstock.model.timing import Instant

MAX_AGE = timedelta(seconds=30)
"""An autoscaler that has said nothing for longer is not counted on."""


class _Aim(Struct, frozen=True):
    desired: int
    at: Instant


class _FleetNews(Struct, frozen=True):
    """A fleet's record, as far as it matters here."""

    latest: _Aim
    queues: tuple[str, ...] | None = None
    except_queues: tuple[str, ...] = ()
    runs: Runs | None = None
    app: str | None = None

    def serves(self, queue: str) -> bool:
        return queue not in self.except_queues if self.queues is None else queue in self.queues

    def is_fresh(self, now: datetime) -> bool:
        return now - self.latest.at <= MAX_AGE

    def is_of(self, types: Sequence[DeclaredType]) -> bool:
        """Whether its app has one of these, as far as that is known."""
        return self.app is None or not any(one.apps for one in types) or any(self.app in one.apps for one in types)

    def lacks(self, job: Job, names: Sequence[str], types: Sequence[DeclaredType]) -> bool:
        """Whether its workers would not run a job that goes by these names."""
        newest = max((one.apps.get(self.app or "", one.declared_at) for one in types), default=None)
        return self.runs is not None and self.runs.lacks(job.type, names, newest)


class Prospect(Enum):
    """What autoscalers have said about workers for a job."""

    COMING = auto()
    NONE = auto()
    NO_AUTOSCALER = auto()


def prospect_of(job: Job, reading: CatalogReading, now: datetime) -> Prospect:
    """Whether a fleet that serves a job's queue should have workers by now that run its type.

    NO_AUTOSCALER: autoscalers have run such fleets, but none does now that acts for an app which has its type.
    """
    names = reading.handled_as(job.type)
    types = [reading.types[name] for name in names if name in reading.types]
    serving = [said for said in _said(reading) if said.serves(job.queue)]
    acting = [said for said in serving if said.is_fresh(now) and said.is_of(types)]
    if any(said.latest.desired > 0 and not said.lacks(job, names, types) for said in acting):
        return Prospect.COMING
    return Prospect.NO_AUTOSCALER if serving and not acting else Prospect.NONE


def _said(reading: CatalogReading) -> list[_FleetNews]:
    kept = [one.value for one in reading.notices.values() if one.kind == NoticeKind.FLEET_RECORD]
    return [said for value in kept if value is not None and (said := _decoded(value)) is not None]


@lru_cache(maxsize=256)
def _decoded(value: bytes) -> _FleetNews | None:
    try:
        return msgspec.json.decode(value, type=_FleetNews)
    except msgspec.ValidationError:
        return None
