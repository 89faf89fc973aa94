"""What user code can do to its process, and what that does to others: nothing."""

import os
import signal
from pathlib import Path

import pytest

from penstock.model.job import ErrorCode
from tests.services.worker_case import until, working


@pytest.mark.parametrize(
    ("type_name", "text"),
    [("exit_at_once", "exited with status 7"), ("segfault", "was killed by SIGSEGV")],
)
async def test_a_crash_alone_is_charged_and_noticed_at_once(tmp_path: Path, type_name: str, text: str) -> None:
    async with working(tmp_path, executors=1) as at:
        error = (await at.reach.outcome(at.reach.submit(type_name), 5)).error
        assert error is not None
        assert error.code is ErrorCode.CRASHED
        assert text in error.message
        assert await at.reach.result(at.reach.submit("add", a=1)) == 2


async def test_those_that_crash_together_are_suspects(tmp_path: Path) -> None:
    async with working(tmp_path, executors=1) as at:
        guilty = at.reach.submit("exit_when_told")
        neighbour = at.reach.submit("wait_async", name="n")
        await at.appears("armed")
        await at.appears("waiting-n")
        at.go("exit")
        await at.reach.until("both are released", lambda: len(at.reach.released) == 2)
        assert at.reach.released == {guilty: True, neighbour: True}
        assert at.reach.outcomes == {}


async def test_a_crash_leaves_the_other_executor_alone(tmp_path: Path) -> None:
    async with working(tmp_path, executors=2) as at:
        one = at.reach.submit("wait_async", name="one")
        busy = int(await at.appears("waiting-one"))
        while await at.reach.result(at.reach.submit("pid")) == busy:
            """The other executor is still importing the app."""
        error = (await at.reach.outcome(at.reach.submit("segfault"))).error
        assert error is not None
        at.go()
        assert await at.reach.result(one) == "one"


async def test_an_executor_killed_from_outside_is_replaced(tmp_path: Path) -> None:
    async with working(tmp_path, executors=1) as at:
        [*before] = at.executors()
        os.kill(int(str(await at.reach.result(at.reach.submit("pid")))), signal.SIGKILL)
        await until("another is there", lambda: bool(set(at.executors()) - set(before)))
        assert await at.reach.result(at.reach.submit("pid")) not in before


async def test_a_job_given_to_a_dead_executor_is_not_charged(tmp_path: Path) -> None:
    async with working(tmp_path, executors=1) as at:
        pid = await at.reach.result(at.reach.submit("pid"))
        os.kill(int(str(pid)), signal.SIGSTOP)
        job = at.reach.submit("pid")
        await at.reach.until("it is claimed", lambda: any(one.job == job for one in at.reach.claimed))
        os.kill(int(str(pid)), signal.SIGKILL)
        await at.reach.until("it is given back", lambda: job in at.reach.released)
        assert at.reach.released == {job: False}


async def test_a_suspect_that_crashes_again_is_charged(tmp_path: Path) -> None:
    async with working(tmp_path, executors=1) as at:
        error = (await at.reach.outcome(at.reach.submit("exit_at_once", alone=True))).error
        assert error is not None
        assert error.code is ErrorCode.CRASHED


async def test_one_that_eats_memory_is_killed_before_the_machine_suffers(tmp_path: Path) -> None:
    async with working(tmp_path, executors=1, memory_mib=150) as at:
        error = (await at.reach.outcome(at.reach.submit("eat"))).error
        assert error is not None
        assert error.code is ErrorCode.OUT_OF_MEMORY
        assert "150 MiB" in error.message


async def test_a_blocked_loop_delays_no_other_job(tmp_path: Path) -> None:
    async with working(tmp_path, executors=1) as at:
        at.reach.submit("block", seconds=20, timeout=15)
        blocked = await at.appears("blocking")
        stuck = at.reach.submit("pid")
        await at.reach.until("it is given back", lambda: stuck in at.reach.released, 5)
        assert at.reach.released == {stuck: False}
        assert await at.reach.result(at.reach.submit("pid")) != int(blocked)


@pytest.mark.parametrize("type_name", ["block", "hold_the_lock"])
async def test_what_was_taken_back_never_runs_when_the_loop_wakes(tmp_path: Path, type_name: str) -> None:
    async with working(tmp_path, executors=1) as at:
        blocker = at.reach.submit(type_name, seconds=3)
        await at.appears("blocking")
        stuck = at.reach.submit("sleep")
        await at.reach.until("it is given back", lambda: stuck in at.reach.released, 5)
        assert await at.reach.result(blocker) == "awake"
        assert await at.reach.result(at.reach.submit("add", a=1)) == 2
        assert not (tmp_path / "sleeping").exists()
        assert stuck not in at.reach.outcomes
