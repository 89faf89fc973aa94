"""Worker keys that are limited to queues: what they may name, claim, and touch by a fence."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from penstock.api.exchange import ApiRequest
from penstock.model.errors import Forbidden
from penstock.model.ids import JobId
from penstock.model.keys import ApiKey, KeyScope
from penstock.model.workers import JobType, Worker


def own_queues(call: ApiRequest, asked: Sequence[str] | None) -> tuple[str, ...] | None:
    """The queues to serve of those asked for (None: all that it may). Forbidden names those that the key is not for."""
    key = call.key
    if key is None or key.queues is None:
        return None if asked is None else tuple(asked)
    if asked is None:
        return key.queues
    _refuse(key, key.foreign(asked))
    return tuple(asked)


def own_worker(call: ApiRequest, worker: Worker) -> Worker:
    """The worker as it is: one with a limited key serves those queues only."""
    return replace(worker, queues=own_queues(call, worker.queues))


def own_types(call: ApiRequest, types: Sequence[JobType]) -> Sequence[JobType]:
    """The types that it may declare. An app may have others, which are left to workers whose keys are for them."""
    key = call.key
    if key is None:
        return types
    mine = [one for one in types if not key.foreign((one.queue,))]
    return mine if KeyScope.ADMIN in key.scopes else [_harmless(one, key) for one in mine]


def _harmless(declared: JobType, key: ApiKey) -> JobType:
    """The type without what its fleet would be made of, and without the queues that the key is not for.

    To run jobs is not to say what is started elsewhere, nor who else's jobs are run by it.
    """
    fleet = declared.fleet
    if fleet is None:
        return declared
    queues = fleet.queues and tuple(queue for queue in fleet.queues if not key.foreign((queue,)))
    return replace(declared, fleet=replace(fleet, image=None, command=None, environment={}, queues=queues or None))


async def refuse_foreign_jobs(call: ApiRequest, jobs: Iterable[JobId], unless: KeyScope | None = None) -> None:
    """Raise Forbidden if the key is limited to other queues than one of the jobs is in, `unless` a scope is enough.

    Costs a read, with a limited key only. A job that is not there is left to the move itself.
    """
    key = call.key
    if key is not None and key.queues is not None and unless not in key.scopes:
        found = await call.engine.store.get(list(jobs))
        if key.foreign(job.queue for job in found if job is not None):
            # Which queue a job is in is for keys that may look at jobs.
            raise Forbidden(f"the API key {key.id} is for jobs of {', '.join(key.queues)} only, not for this one")


def _refuse(key: ApiKey, foreign: Sequence[str]) -> None:
    if foreign:
        raise Forbidden(
            f"the API key {key.id} is for jobs of {', '.join(key.queues or ())} only, not of {', '.join(foreign)}; "
            "name only its queues (--queue), or ask with a key that is for the others too"
        )
