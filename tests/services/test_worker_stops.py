"""How a worker ends jobs that do not end by themselves: asked first, then interrupted, then killed."""

import asyncio
from pathlib import Path

import pytest

from penstock.model.job import ErrorCode
from tests.services.fake_worker_api import WITHIN
from tests.services.running_worker import run_worker
from tests.watch import until_ended


@pytest.mark.parametrize(
    ("type_name", "running", "stopped"),
    [("sleep", "sleeping", "cleaned"), ("check", "checking", None), ("ignore_checks", "ignoring", "interrupted")],
)
async def test_a_cancelled_job_may_clean_up(tmp_path: Path, type_name: str, running: str, stopped: str | None) -> None:
    async with run_worker(tmp_path, executors=1, grace_seconds=4) as at:
        before = await at.worker_api.result(at.worker_api.submit("pid"))
        job = at.worker_api.submit(type_name)
        await at.appears(running)
        at.worker_api.cancelling.add(job)
        outcome = await at.worker_api.outcome(job)
        assert outcome.cancelled
        assert stopped is None or (tmp_path / stopped).exists()
        assert await at.worker_api.result(at.worker_api.submit("pid")) == before


@pytest.mark.parametrize(("type_name", "running"), [("swallow", "swallowing"), ("block", "blocking")])
async def test_one_that_ignores_the_cancel_is_killed_after_the_grace(
    tmp_path: Path, type_name: str, running: str
) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        old = await at.worker_api.result(at.worker_api.submit("pid"))
        job = at.worker_api.submit(type_name)
        await at.appears(running)
        at.worker_api.cancelling.add(job)
        assert (await at.worker_api.outcome(job)).cancelled
        assert await at.worker_api.result(at.worker_api.submit("pid")) != old


async def test_a_job_cancelled_before_it_ran_never_runs(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1, capacity=2) as at:
        at.worker_api.submit("block", seconds=0.4)
        await at.appears("blocking")
        job = at.worker_api.submit("sleep")
        await at.worker_api.until("it is claimed", lambda: any(one.job == job for one in at.worker_api.claimed))
        at.worker_api.cancelling.add(job)
        assert (await at.worker_api.outcome(job)).cancelled
        assert not (tmp_path / "sleeping").exists()


@pytest.mark.parametrize("type_name", ["sleep", "check", "swallow", "block"])
async def test_a_job_that_takes_too_long_is_timed_out(tmp_path: Path, type_name: str) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit(type_name, timeout=0.3))).error
        assert error is not None
        assert (error.code, error.message) == (ErrorCode.TIMEOUT, "still running after 0.3 s")


async def test_neighbours_of_one_that_had_to_be_killed_are_released_to_run_alone(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        neighbour = at.worker_api.submit("wait_async", name="n")
        await at.appears("waiting-n")
        guilty = at.worker_api.submit("swallow", timeout=0.3)
        error = (await at.worker_api.outcome(guilty)).error
        assert error is not None
        assert error.code is ErrorCode.TIMEOUT
        await at.worker_api.until("it is released", lambda: neighbour in at.worker_api.released)
        assert at.worker_api.released == {neighbour: True}
        assert neighbour not in at.worker_api.outcomes


async def test_one_that_runs_alone_is_restarted_by_no_other_s_timeout(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        alone = at.worker_api.submit("wait_async", name="n", alone=True)
        await at.appears("waiting-n")
        for _ in range(2):
            await at.worker_api.outcome(at.worker_api.submit("swallow", timeout=0.1))
        at.go()
        assert await at.worker_api.result(alone) == "n"
        assert at.worker_api.released == {}


async def test_one_that_had_not_started_beside_one_that_had_to_be_killed_need_not_run_alone(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        at.worker_api.submit("block", timeout=0.3)
        await at.appears("blocking")
        unstarted = at.worker_api.submit("add", a=1)
        await at.worker_api.until("it is released", lambda: unstarted in at.worker_api.released)
        assert at.worker_api.released == {unstarted: False}


async def test_a_program_that_ignores_the_signal_is_killed_with_all_it_started(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("stubborn")
        pid = int(await at.appears("stubborn"))
        at.worker_api.cancelling.add(job)
        assert (await at.worker_api.outcome(job)).cancelled
        async with asyncio.timeout(WITHIN):
            await until_ended([pid])


async def test_a_program_that_takes_too_long_is_timed_out(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("stubborn", timeout=0.3))).error
        assert error is not None
        assert error.code is ErrorCode.TIMEOUT
