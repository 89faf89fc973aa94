"""What user code can do to its process, and what that does to others: nothing."""

import os
import signal
from pathlib import Path

import pytest

from penstock.model.job import ErrorCode
from tests.services.running_worker import RunningWorker, run_worker


@pytest.mark.parametrize(
    ("type_name", "text"),
    [("exit_at_once", "exited with status 7"), ("segfault", "was killed by SIGSEGV")],
)
async def test_a_crash_alone_is_charged_and_noticed_at_once(tmp_path: Path, type_name: str, text: str) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit(type_name), 5)).error
        assert error is not None
        assert error.code is ErrorCode.CRASHED
        assert text in error.message
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2


async def test_those_that_crash_together_are_suspects(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        guilty = at.worker_api.submit("exit_when_told")
        neighbour = at.worker_api.submit("wait_async", name="n")
        await at.appears("armed")
        await at.appears("waiting-n")
        at.go("exit")
        await at.worker_api.until("both are released", lambda: len(at.worker_api.released) == 2)
        assert at.worker_api.released == {guilty: True, neighbour: True}
        assert at.worker_api.outcomes == {}


async def test_a_crash_leaves_the_other_executor_alone(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=2) as at:
        one = at.worker_api.submit("wait_async", name="one")
        busy = int(await at.appears("waiting-one"))
        while await at.worker_api.result(at.worker_api.submit("pid")) == busy:
            """The other executor is still importing the app."""
        error = (await at.worker_api.outcome(at.worker_api.submit("segfault"))).error
        assert error is not None
        at.go()
        assert await at.worker_api.result(one) == "one"


async def end_of_next(at: RunningWorker, type_name: str) -> str:
    """Submit a job and wait until it was settled or given back; its id."""
    job = at.worker_api.submit(type_name)
    known = (at.worker_api.outcomes, at.worker_api.released)
    await at.worker_api.until("it has ended or was given back", lambda: any(job in one for one in known))
    return job


async def test_an_executor_killed_from_outside_is_replaced(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        [*before] = at.executors()
        os.kill(int(str(await at.worker_api.result(at.worker_api.submit("pid")))), signal.SIGKILL)
        while (job := await end_of_next(at, "pid")) not in at.worker_api.outcomes:
            """It was given to the one that was killed, before that was noticed."""
        assert await at.worker_api.result(job) not in before


async def test_a_job_given_to_a_dead_executor_is_not_charged(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        pid = await at.worker_api.result(at.worker_api.submit("pid"))
        os.kill(int(str(pid)), signal.SIGSTOP)
        job = at.worker_api.submit("pid")
        await at.worker_api.until("it is claimed", lambda: any(one.job == job for one in at.worker_api.claimed))
        os.kill(int(str(pid)), signal.SIGKILL)
        await at.worker_api.until("it is given back", lambda: job in at.worker_api.released)
        assert at.worker_api.released == {job: False}


async def test_a_suspect_that_crashes_again_is_charged(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("exit_at_once", alone=True))).error
        assert error is not None
        assert error.code is ErrorCode.CRASHED


async def test_one_that_eats_memory_is_killed_before_the_machine_suffers(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1, memory_mib=150) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("eat"))).error
        assert error is not None
        assert error.code is ErrorCode.OUT_OF_MEMORY
        assert "150 MiB" in error.message


async def test_a_blocked_loop_delays_no_other_job(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        at.worker_api.submit("block", seconds=20, timeout=15)
        blocked = await at.appears("blocking")
        stuck = at.worker_api.submit("pid")
        await at.worker_api.until("it is given back", lambda: stuck in at.worker_api.released, 5)
        assert at.worker_api.released == {stuck: False}
        assert await at.worker_api.result(at.worker_api.submit("pid")) != int(blocked)


@pytest.mark.parametrize("type_name", ["block", "hold_the_lock"])
async def test_what_was_taken_back_never_runs_when_the_loop_wakes(tmp_path: Path, type_name: str) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        blocker = at.worker_api.submit(type_name, seconds=3)
        await at.appears("blocking")
        stuck = at.worker_api.submit("sleep")
        await at.worker_api.until("it is given back", lambda: stuck in at.worker_api.released, 5)
        assert await at.worker_api.result(blocker) == "awake"
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
        assert not (tmp_path / "sleeping").exists()
        assert stuck not in at.worker_api.outcomes
