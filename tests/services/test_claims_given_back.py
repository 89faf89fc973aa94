"""Jobs that were claimed and cannot be handed over: given back at once, whatever kept them from it."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from penstock.engine import Engine
from penstock.model.ids import JobId
from penstock.model.job import ObjectLink
from penstock.model.lifecycle import State
from tests.services.engine_steps import claim, dispatcher, join, request, submit

PADDED = b'{"a":1' + b" " * 70_000 + b"}"


async def submit_large(engine: Engine) -> JobId:
    """A job whose params lie in the object store."""
    (made,) = await engine.jobs.submit([msgspec.structs.replace(request(), params=msgspec.Raw(PADDED))])
    return made.job.id  # type: ignore[union-attr]


async def standing(engine: Engine, *jobs: JobId) -> set[tuple[State, int]]:
    return {(found.state, found.attempt) for found in [await engine.jobs.get(job) for job in jobs]}


class Objects:
    """Reads params as the engine does, once it is told to, or fails."""

    def __init__(self, read: Callable[[ObjectLink], Awaitable[bytes]], error: Exception | None = None) -> None:
        self._read = read
        self._error = error
        self.reading = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, link: ObjectLink) -> bytes:
        self.reading.set()
        if self._error is not None:
            raise self._error
        await self.go.wait()
        return await self._read(link)


async def test_a_claim_whose_asker_goes_away_while_params_are_read_gives_all_its_jobs_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(engine)
    jobs = [(await submit(engine)).id, await submit_large(engine), (await submit(engine)).id]
    objects = Objects(engine.files.read_value)
    monkeypatch.setattr(engine.files, "read_value", objects)
    asking = asyncio.create_task(claim(engine))
    await objects.reading.wait()
    assert await standing(engine, *jobs) == {(State.RUNNING, 1)}
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await standing(engine, *jobs) == {(State.QUEUED, 0)}
    objects.go.set()
    await dispatcher(engine).step()
    assert {one.job for one in await claim(engine)} == set(jobs)


async def test_an_asker_that_goes_away_twice_keeps_no_job_either(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(engine)
    job = await submit_large(engine)
    objects = Objects(engine.files.read_value)
    monkeypatch.setattr(engine.files, "read_value", objects)
    asking = asyncio.create_task(claim(engine))
    await objects.reading.wait()
    for _ in range(2):
        asking.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(5):
        while await standing(engine, job) != {(State.QUEUED, 0)}:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)


async def test_a_claim_that_fails_for_one_job_keeps_none_of_the_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(engine)
    jobs = [(await submit(engine)).id, await submit_large(engine)]
    monkeypatch.setattr(engine.files, "read_value", Objects(engine.files.read_value, RuntimeError("unforeseen")))
    with pytest.raises(RuntimeError):
        await claim(engine)
    assert await standing(engine, *jobs) == {(State.QUEUED, 0)}
