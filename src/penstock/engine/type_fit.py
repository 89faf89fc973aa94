"""Which workers have which types, and which of them take a job's params.

During a rolling deployment workers of two versions run side by side. A job whose params one of them refuses is not at
fault: it was accepted by a declaration that another worker has, or soon will have. It is given back for that one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.catalog import Catalog, CatalogReading
from penstock.engine.parts import EngineParts
from penstock.model.declarations import DeclaredType, Schema, unfit_for, unfit_type
from penstock.model.errors import CorruptObject, InvalidParams, NotFound, ObjectsUnavailable, Unavailable
from penstock.model.fences import claims_of
from penstock.model.ids import JobId
from penstock.model.job import JSON_NULL, ErrorCode, Job, Lease, Loss
from penstock.model.notices import NoticeKind
from penstock.model.schema import checker
from penstock.model.wire.jobs import Outcome, Refusal
from penstock.model.workers import Worker, WorkerState

SILENT_FOR = timedelta(seconds=20)
"""A worker not seen for this long counts as lost: more than a lease and a heartbeat."""


def is_silent(worker: Worker, now: datetime) -> bool:
    return worker.seen_at is None or now - worker.seen_at > SILENT_FOR


def servers_of(job: Job, reading: CatalogReading, now: datetime) -> Iterator[Worker]:
    """The workers that take jobs of its type from its queue now."""
    names = reading.handled_as(job.type)
    return (
        worker
        for worker in reading.workers
        if _serves(worker, job, now) and any(name in worker.types for name in names)
    )


def _serves(worker: Worker, job: Job, now: datetime) -> bool:
    alive = worker.state is WorkerState.READY and not is_silent(worker, now)
    return alive and (worker.queues is None or job.queue in worker.queues) and job.queue not in worker.except_queues


def last_had(name: str, reading: CatalogReading) -> datetime | None:
    """When a worker was last known to have a type; None if it was never declared."""
    declared = reading.types.get(name)
    if declared is None:
        return None
    seen = [worker.seen_at for worker in reading.workers if name in worker.types]
    return max(at for at in (declared.declared_at, declared.left_at, *seen) if at is not None)


PRECISION = timedelta(minutes=1)
"""A departure less than this after the one recorded is not written: each shard saw the worker at another time."""


async def note_departures(catalog: Catalog, departed: Sequence[Worker]) -> None:
    """Record with each type that only these workers had when the last of them was seen."""

    def decide(reading: CatalogReading) -> dict[str, bytes | None]:
        departures = {name: at for name, at in _departures(departed, reading).items() if _is_later(name, at, reading)}
        return {name: msgspec.json.encode(replace(reading.types[name], left_at=at)) for name, at in departures.items()}

    if departed:
        await catalog.change(NoticeKind.TYPE, decide)


def _departures(departed: Iterable[Worker], reading: CatalogReading) -> dict[str, datetime]:
    """When these workers were last seen, by type, for the types that no other worker has."""
    now = reading.shard_now
    had = {name for worker in reading.workers if not is_silent(worker, now) for name in worker.types}
    found: dict[str, datetime] = {}
    for worker in departed:
        at = worker.seen_at or now
        found |= {name: max(at, found.get(name, at)) for name in worker.types if name not in had}
    return found


def _is_later(name: str, at: datetime, reading: CatalogReading) -> bool:
    declared = reading.types.get(name)
    if declared is None:
        return False
    return at - max(declared.declared_at, declared.left_at or declared.declared_at) >= PRECISION


FIRST_WAIT = timedelta(milliseconds=250)
LONGEST_WAIT = timedelta(seconds=30)
ZERO = timedelta(0)
DOUBLINGS = 16


def wait_for_another(job: Job, params: bytes, reading: CatalogReading, now: datetime) -> timedelta | None:
    """How long a job whose params its worker's handler refused waits for another worker; None if none may take it.

    A worker may take it if the params fit its declaration: the current one, that of a live worker, or one of the last
    day. The first time it does not wait at all: the worker that refused it does not get it again.
    """
    refused = signature_of_holder(job, reading)
    if not any(name != refused and accepts(one, params) for name, one in _schemas(job.type, reading).items()):
        return None
    before = claims_of(job.fence) - job.attempt
    return min(LONGEST_WAIT, FIRST_WAIT * (1 << min(before, DOUBLINGS))) if before else ZERO


def fits_a_worker(job: Job, reading: CatalogReading, now: datetime) -> bool:
    """Whether some live worker takes the params of a waiting job, as far as is known."""
    if job.params is None or fits_all(job, reading, now):
        return True
    schemas, up = _schemas(job.type, reading), _other_signatures_up(job, reading, now)
    return any(name not in schemas or accepts(schemas[name], job.params) for name in up)


def fits_all(job: Job, reading: CatalogReading, now: datetime) -> bool:
    """Whether every job of this type and queue fits a worker: one schema of params counts, and a live worker has it."""
    schemas, up = _schemas(job.type, reading), _other_signatures_up(job, reading, now)
    return len(schemas) < 2 and bool(up) and up <= set(schemas)


def _other_signatures_up(job: Job, reading: CatalogReading, now: datetime) -> set[str]:
    return signatures_up(job, reading, now) - {unfit_for(job.type)}


def signatures_up(job: Job, reading: CatalogReading, now: datetime) -> set[str]:
    """The signatures of the job's type among the workers that could claim it now."""
    return {_signature(worker, job.type, reading) or "" for worker in servers_of(job, reading, now)}


def accepts(schema: Schema, params: bytes) -> bool:
    """Whether params fit a schema, as far as a server can check."""
    if schema is None:
        return True
    try:
        _check_of(msgspec.json.encode(schema))(params)
    except InvalidParams:
        return False
    return True


@lru_cache(maxsize=256)
def _check_of(schema: bytes) -> Callable[[bytes], None]:
    return checker(msgspec.json.decode(schema))


def signature_of_holder(job: Job, reading: CatalogReading) -> str | None:
    """The signature of the handler on the worker that runs the job, if it is known."""
    row = _row(job.worker, reading)
    return None if row is None else _signature(row, job.type, reading)


def unfit_types(names: Iterable[str], worker: str, reading: CatalogReading) -> frozenset[str]:
    """The stored types of jobs that did not fit other workers' handlers, and may fit this worker's.

    Also of those that did not fit its own, once no other declaration could take them: then they fail.
    """
    row, found = _row(worker, reading), set[str]()
    changed = reading.aliases or any(declared.earlier for declared in reading.types.values())
    for name in names if changed else ():
        own = None if row is None else _signature(row, name, reading)
        hopeless = set(_schemas(name, reading)) <= {own}
        known = {one for declared in _declared(name, reading) for one in (declared.signature, *declared.earlier)}
        found.update(unfit_type(name, one) for one in known if one != own or hopeless)
    return frozenset(found)


def _row(worker: str | None, reading: CatalogReading) -> Worker | None:
    return next((one for one in reading.workers if one.id == worker), None)


def _signature(worker: Worker, type_name: str, reading: CatalogReading) -> str | None:
    """The signature of a worker's handler for jobs of a type, if it is known."""
    return next((worker.signatures.get(name) for name in reading.handled_as(type_name) if name in worker.types), None)


def _schemas(type_name: str, reading: CatalogReading) -> dict[str, Schema]:
    """The schemas of a type's params that count, by signature."""
    now, names = reading.shard_now, reading.handled_as(type_name)
    alive = [worker for worker in reading.workers if not is_silent(worker, now)]
    up = {worker.signatures[name] for worker in alive for name in names if name in worker.signatures}
    known = _declared(type_name, reading)
    return {name: schema for declared in known for name, schema in declared.schemas(now, up).items()}


def _declared(type_name: str, reading: CatalogReading) -> list[DeclaredType]:
    return [reading.types[name] for name in reading.handled_as(type_name) if name in reading.types]


class Misfits:
    """Gives jobs back whose params did not fit their worker's handler, instead of settling them as failed."""

    def __init__(self, parts: EngineParts) -> None:
        self._store = parts.store
        self._catalog = parts.catalog
        self._files = parts.files
        self._signals = parts.signals

    async def part(self, outcomes: Sequence[Outcome], jobs: Mapping[JobId, Job]) -> tuple[list[Outcome], list[Refusal]]:
        """The outcomes to settle, and refusals for the rest: `jobs` that were given back for another worker."""
        misfits = {one.job: jobs[one.job] for one in outcomes if _is_misfit(one) and one.job in jobs}
        if not misfits:
            return list(outcomes), []
        params = {job.id: await self._params(job) for job in misfits.values()}
        unsure = {id for id, value in params.items() if isinstance(value, ObjectsUnavailable)}
        known = {job: value for job, value in params.items() if isinstance(value, bytes)}
        others = await self._for_others([(misfits[job], value) for job, value in known.items()])
        refused = [Refusal(one.job, one.fence, Loss.UNSURE) for one in outcomes if one.job in unsure]
        refused += await self._give_back(
            [(Lease(one.job, one.fence), others[one.job]) for one in outcomes if one.job in others]
        )
        return [one for one in outcomes if one.job not in unsure and one.job not in others], refused

    async def _params(self, job: Job) -> bytes | ObjectsUnavailable | None:
        """The params of a job; None if they are lost for good."""
        if job.params is not None or job.params_object is None:
            return job.params or JSON_NULL
        try:
            return await self._files.read_value(job.params_object)
        except (NotFound, CorruptObject):
            return None
        except ObjectsUnavailable as error:
            return error

    async def _for_others(self, misfits: Sequence[tuple[Job, bytes]]) -> dict[JobId, "_GiveBackTerms"]:
        """The terms of giving back, for each job that another worker may take."""

        def terms(reading: CatalogReading) -> dict[JobId, _GiveBackTerms]:
            found = {job.id: _terms_of(job, params, reading) for job, params in misfits}
            return {job: one for job, one in found.items() if one is not None}

        found = terms(await self._catalog.read())
        # No job may fail by a reading of a second ago: a newer declaration may have been made since.
        return found if len(found) == len(misfits) else terms(await self._catalog.read_store())

    async def _give_back(self, misfits: Sequence[tuple[Lease, "_GiveBackTerms"]]) -> list[Refusal]:
        """Release the jobs without counting the attempt; retyped first, in case the process dies in between."""
        refused: list[Refusal] = []
        for terms in {terms for _, terms in misfits}:
            leases = [lease for lease, its in misfits if its == terms]
            await self._store.retype(leases, terms.name)
            answers = await self._store.release(leases, delay=terms.delay)
            given = [answer for answer in answers if not isinstance(answer, Unavailable)]
            self._signals.publish_events([answer.event for answer in given if answer.event is not None])
            refused += [
                Refusal(one.job, one.fence, loss) for one in given if (loss := _loss(one.loss, terms)) is not None
            ]
            refused += [
                Refusal(lease.job, lease.fence, Loss.UNSURE)
                for lease, answer in zip(leases, answers, strict=True)
                if isinstance(answer, Unavailable)
            ]
        return refused


class _GiveBackTerms(Struct, frozen=True):
    """The stored type under which a job waits for another worker, and its least delay.

    `outdated`: its worker does not have the current declaration, and should leave the type to workers that have.
    """

    name: str
    delay: timedelta | None
    outdated: bool


def _terms_of(job: Job, params: bytes, reading: CatalogReading) -> _GiveBackTerms | None:
    wait = wait_for_another(job, params, reading, reading.shard_now)
    if wait is None:
        return None
    refused, current = signature_of_holder(job, reading), reading.types.get(reading.run_as(job.type))
    name = job.type if refused is None else unfit_type(job.type, refused)
    return _GiveBackTerms(name, wait or None, outdated=current is None or current.signature != refused)


def _is_misfit(outcome: Outcome) -> bool:
    return outcome.error is not None and outcome.error.code is ErrorCode.INVALID_PARAMS


def _loss(loss: Loss | None, terms: _GiveBackTerms) -> Loss | None:
    """What the worker is told; a repeated release is no loss."""
    if loss not in (None, Loss.MINE_ALREADY):
        return loss
    return Loss.GIVEN_BACK if terms.outdated else None
