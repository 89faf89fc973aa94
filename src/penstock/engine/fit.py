"""Jobs whose params a worker's handler does not take: whether another worker's may, and when that is to be tried. Pure.

While a deployment rolls, workers of two versions stand side by side. A job that one of them cannot run is not at fault:
it was accepted by a declaration that another worker has, or soon will.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from penstock.engine.catalog import Reading
from penstock.engine.serving import servers_of
from penstock.model.declarations import Schema
from penstock.model.errors import InvalidParams
from penstock.model.job import Job
from penstock.model.schema import checker
from penstock.model.workers import Worker

FIRST_WAIT = timedelta(milliseconds=250)
LONGEST_WAIT = timedelta(seconds=30)
DOUBLINGS = 16


def another_may_take(job: Job, params: bytes, reading: Reading, now: datetime) -> bool:
    """Whether the params of a running job fit another declaration of its type than that of the worker that has it.

    The current declaration counts whether or not there is a worker of it yet; an earlier one while a worker has it.
    """
    current = reading.types.get(reading.run_as(job.type))
    takers = {*([current.signature] if current else []), *signatures_up(job, reading, now)} - {
        _refused_by(job, reading)
    }
    return any(name in takers and accepts(schema, params) for name, schema in _schemas(job, reading).items())


def fits_a_worker(job: Job, reading: Reading, now: datetime) -> bool:
    """Whether some worker that could be given a waiting job takes its params, as far as that can be told."""
    schemas, up = _schemas(job, reading), signatures_up(job, reading, now)
    if job.params is None or (len(schemas) < 2 and up <= set(schemas)):
        return True
    return any(name not in schemas or accepts(schemas[name], job.params) for name in up)


def signatures_up(job: Job, reading: Reading, now: datetime) -> set[str]:
    """The signatures of its type that workers have which could be given the job now."""
    return {_signature(worker, job, reading) or "" for worker in servers_of(job, reading, now)}


def wait_before_another(job: Job) -> timedelta:
    """How long a running job that is given back waits for the next worker: longer each time that it is."""
    doublings = min(job.fence - job.attempt, DOUBLINGS)
    return min(LONGEST_WAIT, FIRST_WAIT * (1 << doublings))


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


def _refused_by(job: Job, reading: Reading) -> str | None:
    """The signature of the worker that has the job, if it is known."""
    rows = [worker for worker in reading.workers if worker.id == job.worker]
    return _signature(rows[0], job, reading) if rows else None


def _signature(worker: Worker, job: Job, reading: Reading) -> str | None:
    """What the handler of a worker takes that runs the job, if that is known."""
    return next((worker.signatures.get(name) for name in reading.handled_as(job.type) if name in worker.types), None)


def _schemas(job: Job, reading: Reading) -> dict[str, Schema]:
    """Every shape that the job's params may have been accepted with, by signature."""
    known = [reading.types[name] for name in reading.handled_as(job.type) if name in reading.types]
    return {name: schema for declared in known for name, schema in declared.schemas.items()}
