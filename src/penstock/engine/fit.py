"""Jobs whose params a worker's handler does not take: whether another worker's may, and when that is to be tried. Pure.

While a deployment rolls, workers of two versions stand side by side. A job that one of them cannot run is not at fault:
it was accepted by a declaration that another worker has, or soon will.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from penstock.engine.catalog import CatalogReading
from penstock.engine.serving import is_silent, servers_of
from penstock.model.declarations import DeclaredType, Schema, unfit_for, unfit_type
from penstock.model.errors import InvalidParams
from penstock.model.fences import claims_of
from penstock.model.job import Job
from penstock.model.schema import checker
from penstock.model.workers import Worker

FIRST_WAIT = timedelta(milliseconds=250)
LONGEST_WAIT = timedelta(seconds=30)
ZERO = timedelta(0)
DOUBLINGS = 16


def wait_for_another(job: Job, params: bytes, reading: CatalogReading, now: datetime) -> timedelta | None:
    """How long a running job, whose params do not fit its worker's handler, waits for another; None: none may take it.

    Another takes it whose declaration they do fit: the current one, one that is up, or one of the last day. The first
    time it need not wait at all: who could not run it is not given it again.
    """
    refused = signature_of_holder(job, reading)
    if not any(name != refused and accepts(one, params) for name, one in _schemas(job.type, reading).items()):
        return None
    before = claims_of(job.fence) - job.attempt
    return min(LONGEST_WAIT, FIRST_WAIT * (1 << min(before, DOUBLINGS))) if before else ZERO


def fits_a_worker(job: Job, reading: CatalogReading, now: datetime) -> bool:
    """Whether some worker that could be given a waiting job takes its params, as far as that can be told."""
    if job.params is None or fits_all(job, reading, now):
        return True
    schemas, up = _schemas(job.type, reading), _other_signatures_up(job, reading, now)
    return any(name not in schemas or accepts(schemas[name], job.params) for name in up)


def fits_all(job: Job, reading: CatalogReading, now: datetime) -> bool:
    """Whether every job of this type and queue fits a worker: only one shape of params counts, and a worker has it."""
    schemas, up = _schemas(job.type, reading), _other_signatures_up(job, reading, now)
    return len(schemas) < 2 and bool(up) and up <= set(schemas)


def _other_signatures_up(job: Job, reading: CatalogReading, now: datetime) -> set[str]:
    return signatures_up(job, reading, now) - {unfit_for(job.type)}


def signatures_up(job: Job, reading: CatalogReading, now: datetime) -> set[str]:
    """The signatures of its type that workers have which could be given the job now."""
    return {_signature(worker, job.type, reading) or "" for worker in servers_of(job, reading, now)}


def accepts(schema: Schema, params: bytes) -> bool:
    """Whether params fit a shape, as far as a server can tell."""
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
    """What the handler takes of the worker that has the job, if that is known."""
    row = _row(job.worker, reading)
    return None if row is None else _signature(row, job.type, reading)


def unfit_types(names: Iterable[str], worker: str, reading: CatalogReading) -> frozenset[str]:
    """What jobs of these types are called that did not fit others' handlers, and may fit this worker's.

    Also those that did not fit its own, once no other declaration counts that could take them: then they fail.
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
    """What the handler of a worker takes that runs jobs of a type, if that is known."""
    return next((worker.signatures.get(name) for name in reading.handled_as(type_name) if name in worker.types), None)


def _schemas(type_name: str, reading: CatalogReading) -> dict[str, Schema]:
    """The shapes of a type's params that count, by signature."""
    now, names = reading.shard_now, reading.handled_as(type_name)
    alive = [worker for worker in reading.workers if not is_silent(worker, now)]
    up = {worker.signatures[name] for worker in alive for name in names if name in worker.signatures}
    known = _declared(type_name, reading)
    return {name: schema for declared in known for name, schema in declared.schemas(now, up).items()}


def _declared(type_name: str, reading: CatalogReading) -> list[DeclaredType]:
    return [reading.types[name] for name in reading.handled_as(type_name) if name in reading.types]
