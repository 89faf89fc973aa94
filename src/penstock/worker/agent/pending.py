"""In the agent: one thing that the engine is yet to be told, and the call that tells several."""

from collections.abc import Sequence

from msgspec import Struct

from penstock.engine.reach import WorkerApi
from penstock.model.job import Lease
from penstock.model.wire import Outcome, Refusal
from penstock.worker.agent.attempt import Attempt
from penstock.worker.agent.ending import Release


class PendingOutcome(Struct, eq=False):
    """How an attempt ended. Not told before `ready_at`, nor until `log_until` before its log; monotonic seconds.

    `failing_since` is when the engine first failed to take it by itself, and `simplified` whether it has been replaced
    by a plain error since.
    """

    attempt: Attempt
    telling: Outcome | Release
    ready_at: float = 0.0
    log_until: float = 0.0
    told: bool = False
    failing_since: float | None = None
    simplified: bool = False


def calls_of(pending: Sequence[PendingOutcome]) -> list[list[PendingOutcome]]:
    """Those that go in one call together, outcomes first."""
    outcomes = [one for one in pending if type(one.telling) is Outcome]
    if len(outcomes) == len(pending):
        return [outcomes] if outcomes else []
    innocent = [one for one in pending if one.telling == Release()]
    suspects = [one for one in pending if one.telling == Release(suspect=True)]
    return [group for group in (outcomes, innocent, suspects) if group]


async def tell_engine(reach: WorkerApi, group: Sequence[PendingOutcome]) -> list[Refusal]:
    """Tell what goes in one call; what was refused of it."""
    telling = group[0].telling
    if isinstance(telling, Release):
        return await reach.release([one.attempt.lease for one in group], suspects=telling.suspect)
    return await reach.settle([one.telling for one in group if isinstance(one.telling, Outcome)])


def unsure_of(group: Sequence[PendingOutcome], refused: Sequence[Refusal]) -> list[PendingOutcome]:
    """Those that the engine is to be told again: their shard gave no answer."""
    unsure = {Lease(one.job, one.fence) for one in refused if one.unsure}
    return [one for one in group if one.attempt.lease in unsure] if unsure else []
