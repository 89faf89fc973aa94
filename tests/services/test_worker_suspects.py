"""Jobs whose workers were lost before: what a worker does so that only the guilty one is charged."""

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.worker.agent import attempts
from tests.services.fake_worker_api import FakeWorkerApi
from tests.services.running_worker import RunningWorker, run_worker


async def busy(at: RunningWorker, name: str = "n") -> str:
    """A job that runs until `go`."""
    job = at.worker_api.submit("wait_async", name=name)
    await at.appears(f"waiting-{name}")
    return job


def suspect(worker_api: FakeWorkerApi, name: str) -> str:
    """A job that must have the worker to itself, and then runs until `go`."""
    return worker_api.submit("wait_async", alone_in_worker=True, lost=2, name=name)


async def held(at: RunningWorker, job: str) -> None:
    await at.worker_api.until("it is held, and has not begun", lambda: at.worker_api.begun.get(job) is False)


async def test_an_ordinary_job_has_begun_when_it_is_renewed(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = await busy(at)
        await at.worker_api.until("it is renewed", lambda: at.worker_api.begun.get(job) is True)


async def test_a_job_that_was_lost_before_starts_once_the_engine_knows_that_it_does(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("wait_async", name="n", lost=1)
        at.worker_api.unsure.add(job)
        await at.worker_api.until("it is told", lambda: at.worker_api.begun.get(job) is True)
        assert not (tmp_path / "waiting-n").exists()
        at.worker_api.unsure.clear()
        at.go()
        assert await at.worker_api.result(job) == "n"


async def test_a_program_that_was_lost_before_starts_once_the_engine_knows_that_it_does(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("shout", lost=1)
        at.worker_api.unsure.add(job)
        await at.worker_api.until("it is told", lambda: at.worker_api.begun.get(job) is True)
        assert at.worker_api.outcomes == {}
        at.worker_api.unsure.clear()
        assert await at.worker_api.result(job) == {"got": "declared"}


async def test_a_job_that_must_be_alone_waits_for_the_others_and_nothing_starts_beside_it(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        await busy(at)
        job = at.worker_api.submit("sleep", alone_in_worker=True, lost=2, timeout=2.0)
        await held(at, job)
        late = at.worker_api.submit("add", a=1)
        assert not (tmp_path / "sleeping").exists()
        at.go()
        await at.appears("sleeping")
        assert at.worker_api.begun[job] is True
        later = at.worker_api.submit("add", a=1)
        await at.worker_api.outcome(job)
        assert not {late, later} & set(at.worker_api.outcomes)
        await at.worker_api.until(
            "each is given back, or runs afterwards",
            lambda: {late, later} <= {*at.worker_api.released, *at.worker_api.outcomes},
        )


async def test_of_several_that_must_be_alone_one_stays_and_the_others_are_given_back(tmp_path: Path) -> None:
    worker_api = FakeWorkerApi()
    first, second, third = (suspect(worker_api, name=f"{number}") for number in range(3))
    ordinary = worker_api.submit("add", a=1)
    async with run_worker(tmp_path, worker_api) as at:
        assert await at.worker_api.result(ordinary) == 2
        await at.appears("waiting-0")
        assert at.worker_api.released == {second: False, third: False}
        at.go()
        assert await at.worker_api.result(first) == "0"
        assert await at.worker_api.result(suspect(worker_api, name="4")) == "4"


async def test_one_that_waits_to_be_alone_can_be_cancelled(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        neighbour, job = await busy(at), suspect(at.worker_api, name="s")
        await held(at, job)
        at.worker_api.cancelling.add(job)
        assert (await at.worker_api.outcome(job)).cancelled
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
        at.go()
        assert await at.worker_api.result(neighbour) == "n"
        assert not (tmp_path / "waiting-s").exists()


async def test_a_drain_gives_back_what_waits_to_be_alone(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        neighbour, job = await busy(at), suspect(at.worker_api, name="s")
        await held(at, job)
        at.agent.drain()
        await at.worker_api.until("it is given back", lambda: job in at.worker_api.released)
        at.go()
        assert await at.worker_api.result(neighbour) == "n"
        assert not (tmp_path / "waiting-s").exists()


async def test_one_that_waits_too_long_to_be_alone_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SOLE_PATIENCE", timedelta(milliseconds=50))
    async with run_worker(tmp_path) as at:
        await busy(at)
        job = suspect(at.worker_api, name="s")
        await at.worker_api.until("it is given back", lambda: job in at.worker_api.released)
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
