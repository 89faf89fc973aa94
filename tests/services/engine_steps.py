"""Steps of clients, workers and services against an engine, shared by the tests of services."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Raw

from penstock.engine import Engine
from penstock.model.job import Claim, Job, JobError, Lease
from penstock.model.retry import Retry
from penstock.model.submission import Submission
from penstock.model.wire.jobs import Outcome, SubmitRequest
from penstock.model.workers import JobType, Worker, WorkRequest
from penstock.scheduler import Dispatcher, Pruner, Reaper

ZERO = timedelta(0)
LONG = timedelta(seconds=30)

ADD = JobType(
    name="add",
    queue="sums",
    retry=Retry.fixed(delay=10, max_attempts=3, jitter=False),
    timeout_seconds=60,
    params_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
        "required": ["a"],
        "additionalProperties": False,
    },
)
OTHER = JobType(name="other", queue="other")


def worker(name: str = "w1", *types: str, queues: tuple[str, ...] | None = None) -> Worker:
    return Worker(
        id=name,
        host="here",
        pid=1,
        version="test",
        types=types or ("add", "other"),
        queues=queues,
        capacity=10,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def dispatcher(engine: Engine) -> Dispatcher:
    """Of the only shard."""
    (shard,) = engine.store.shards()
    return Dispatcher(engine, shard)


def reaper(engine: Engine) -> Reaper:
    (shard,) = engine.store.shards()
    return Reaper(engine, shard, patience=timedelta(0))


def pruner(engine: Engine) -> Pruner:
    (shard,) = engine.store.shards()
    return Pruner(engine, shard)


async def join(engine: Engine, name: str = "w1") -> None:
    await engine.worker_api.join(worker(name), [ADD, OTHER])


def request(type: str = "add", params: object = None, **more: object) -> SubmitRequest:
    body = {"type": type, "params": {"a": 1} if params is None else params, **more}
    return msgspec.json.decode(msgspec.json.encode(body), type=SubmitRequest)


async def submit(engine: Engine, type: str = "add", params: object = None, **more: object) -> Job:
    (answer,) = await engine.jobs.submit([request(type, params, **more)])
    if isinstance(answer, Submission):
        return answer.job
    raise answer


async def claim(engine: Engine, name: str = "w1", *types: str, limit: int = 10, wait: timedelta = ZERO) -> list[Claim]:
    return await engine.worker_api.claim(name, WorkRequest(frozenset(types or ("add", "other"))), limit, wait)


async def claim_one(engine: Engine, name: str = "w1") -> Claim:
    (claimed,) = await claim(engine, name)
    return claimed


def lease(claimed: Claim) -> Lease:
    return Lease(claimed.job, claimed.fence)


def success(claimed: Claim, result: object = None, **more: object) -> Outcome:
    return Outcome(job=claimed.job, fence=claimed.fence, result=Raw(msgspec.json.encode(result)), **more)  # type: ignore[arg-type]


def failure(claimed: Claim, error: JobError) -> Outcome:
    return Outcome(job=claimed.job, fence=claimed.fence, error=error)


async def body(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
