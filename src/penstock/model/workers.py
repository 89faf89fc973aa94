"""What workers report about themselves: the job types they can run, and their state."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from penstock.model.clock import EARLIEST, LATEST, Instant, check_instants
from penstock.model.fleets import Fleet
from penstock.model.job import DEFAULT_PRIORITY, PRIORITIES, BacklogKey, Priority
from penstock.model.names import Name
from penstock.model.retry import Retry

__all__ = [
    "DEFAULT_TIMEOUT_SECONDS",
    "EVER",
    "DrainRequest",
    "HandlerKind",
    "JobType",
    "Name",
    "Seen",
    "TimeoutSeconds",
    "WorkRequest",
    "Worker",
    "WorkerState",
]

DEFAULT_TIMEOUT_SECONDS = 3600.0
LONG_AGO_SECONDS = 315_360_000.0
"""The greatest code age that is reported."""
CodeAge = Annotated[float, Meta(ge=0, le=LONG_AGO_SECONDS)]
TimeoutSeconds = Annotated[float, Meta(gt=0, le=31_536_000)]


class HandlerKind(StrEnum):
    """How a handler is run: on the executor's event loop, in a thread, in a process of its own, or as a program."""

    ASYNC = "async"
    THREAD = "thread"
    ISOLATED = "isolated"
    COMMAND = "command"


class JobType(Struct, frozen=True, kw_only=True):
    """A job type as declared beside its handler: the defaults a submit may override, and the shape of its params.

    `params_schema` is JSON Schema made from the handler's signature; None accepts anything. `fleet` None: its jobs are
    run by the fleet that serves their queue, which is the default one unless another names it.
    """

    name: Name
    queue: Name
    kind: HandlerKind = HandlerKind.THREAD
    priority: Priority = DEFAULT_PRIORITY
    retry: Retry = Retry()
    timeout_seconds: TimeoutSeconds | None = DEFAULT_TIMEOUT_SECONDS
    params_schema: dict[str, Any] | None = None
    description: str | None = None
    fleet: Fleet | None = None


class WorkerState(StrEnum):
    """The state of a worker: `lost` when it has not reported for longer than a lease."""

    READY = "ready"
    DRAINING = "draining"
    LOST = "lost"


class Worker(Struct, frozen=True, kw_only=True):
    """One worker process as it reports itself with each renew.

    `app` is what it imported its types from (`module:app`), or the name that its settings give that. `signatures` name
    the params that its types take; `code_age_seconds` is how long ago its code was deployed.
    """

    id: Name
    host: str
    pid: int
    version: str
    app: Annotated[str, Meta(max_length=256)] | None = None
    types: tuple[Name, ...]
    signatures: dict[str, str] = {}
    queues: tuple[Name, ...] | None = None
    except_queues: tuple[Name, ...] = ()
    capacity: int
    running: int = 0
    state: WorkerState = WorkerState.READY
    started_at: Instant
    code_age_seconds: CodeAge = 0.0
    seen_at: Instant | None = None

    def __post_init__(self) -> None:
        check_instants(self, "started_at", "seen_at")


class DrainRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker is asked to drain: to claim no more, finish its jobs and end.

    `patience_seconds` from now on it gives the jobs back that have not ended; null: they may take as long as it takes.
    """

    patience_seconds: Annotated[float, Meta(ge=0, le=LONG_AGO_SECONDS)] | None = None

    @property
    def patience(self) -> timedelta | None:
        return None if self.patience_seconds is None else timedelta(seconds=self.patience_seconds)


def most_urgent(requests: Iterable[DrainRequest | None]) -> DrainRequest | None:
    """Of several requests to one worker, that with the least patience; None if there is none."""
    asked = [one for one in requests if one is not None]
    spans = [one.patience_seconds for one in asked if one.patience_seconds is not None]
    return DrainRequest(min(spans, default=None)) if asked else None


class Seen(Struct, frozen=True):
    """A span in which a worker was last heard from: after one instant, and not after another."""

    after: datetime = EARLIEST
    until: datetime = LATEST


EVER = Seen()


def deployed_at(worker: Worker) -> datetime | None:
    """When the code of a worker was deployed, by the clock that has seen it."""
    return None if worker.seen_at is None else worker.seen_at - timedelta(seconds=worker.code_age_seconds)


class WorkRequest(Struct, frozen=True):
    """Which tickets a worker wants: of these types, in these queues (None: in any) but not in some others.

    Of the types in `only_given_back` it wants only jobs that did not fit another worker's
    handler; the engine knows under which names those wait. `least_priority` leaves tickets of some queues for later,
    while more urgent jobs of these queues wait elsewhere. `expected` is a hint: the backlogs of the types that are
    declared, for a broker that has to look into each by itself. Jobs sent to other queues are wanted too.
    """

    types: frozenset[str]
    queues: frozenset[str] | None = None
    except_queues: frozenset[str] = frozenset()
    only_given_back: frozenset[str] = frozenset()
    least_priority: dict[str, int] = {}
    expected: frozenset[BacklogKey] = frozenset()

    def wants(self, queue: str, type_name: str, priority: int = PRIORITIES - 1) -> bool:
        served = self.queues is None or queue in self.queues
        runs = served and type_name in self.types and queue not in self.except_queues
        return runs and priority >= self.least_priority.get(queue, 0)
