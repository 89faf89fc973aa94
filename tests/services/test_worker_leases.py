"""What a worker does when it cannot keep its leases, or is told to end."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from penstock.model.clock import SystemClock
from penstock.model.job import Claim, Lease
from penstock.model.wire.jobs import Refusal, RenewResponse
from penstock.model.workers import DrainRequest, Worker, WorkerState
from tests.jumping_clock import JumpingClock
from tests.logs import log_line
from tests.services.fake_worker_api import WITHIN, FakeWorkerApi
from tests.services.running_worker import APP, handlers_in, run_worker
from tests.watch import until_ended, until_one_ended, until_there


async def test_a_lost_job_is_stopped_and_its_outcome_discarded(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("sleep")
        await at.appears("sleeping")
        at.worker_api.lost.add(job)
        await at.appears("cleaned")
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
        assert job not in at.worker_api.outcomes
        assert job not in at.worker_api.released


async def test_a_worker_that_cannot_renew_stops_its_jobs_before_their_leases_end(tmp_path: Path) -> None:
    worker_api = FakeWorkerApi(lease=2.0)
    async with run_worker(tmp_path, worker_api) as at:
        kind, stubborn = at.worker_api.submit("sleep"), at.worker_api.submit("swallow")
        await at.appears("sleeping")
        await at.appears("swallowing")
        before = at.executors()
        worker_api.down = True
        await at.appears("cleaned", 2.0)
        async with asyncio.timeout(2.0):
            await until_one_ended(before)
        worker_api.down = False
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
        await at.worker_api.until("both are given back", lambda: {kind, stubborn} <= set(at.worker_api.released))
        assert not {kind, stubborn} & set(at.worker_api.outcomes)


async def test_a_stubborn_handler_is_killed_when_its_lease_is_gone_whatever_grace_it_has_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.worker")
    clock = JumpingClock()
    async with run_worker(tmp_path, clock=clock, executors=1, grace_seconds=600) as at:
        job = at.worker_api.submit("swallow")
        await at.appears("swallowing")
        before = at.executors()
        at.worker_api.down = True
        # It is asked to stop at 10.25 s, and from 14 s on the lease is gone.
        with log_line("could not renew its lease, asked to stop") as asked:
            clock.jump(11)
            async with asyncio.timeout(WITHIN):
                await asked.wait()
        assert at.executors() == before
        clock.jump(3)
        async with asyncio.timeout(5.0):
            await until_one_ended(before)
        at.worker_api.down = False
        assert job not in {*at.worker_api.outcomes, *at.worker_api.released}


class SlowToAnswer(FakeWorkerApi):
    """The first renewal takes so long to be answered that little of the lease is left; then nothing is answered."""

    def __init__(self, clock: JumpingClock) -> None:
        super().__init__()
        self._clock = clock
        self._slow = True

    async def renew(self, worker: Worker, leases: Sequence[Lease]) -> RenewResponse:
        renewals = await super().renew(worker, leases)
        if leases and self._slow:
            self._slow = False
            self._clock.jump(12)
            self.down = True
        return renewals


async def test_a_renewed_lease_counts_from_before_it_was_asked_for(tmp_path: Path) -> None:
    """The server may have counted from any moment since, and hands the job on when its own count is over."""
    clock = JumpingClock()
    worker_api = SlowToAnswer(clock)
    async with run_worker(tmp_path, worker_api, clock=clock) as at:
        job = worker_api.submit("sleep")
        await at.appears("cleaned", 5.0)
        worker_api.down = False
        assert job not in worker_api.outcomes


async def test_a_job_outlives_a_heartbeat_that_its_shard_did_not_answer(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("wait_async", name="n")
        at.worker_api.unsure.add(job)
        await at.appears("waiting-n")
        await at.worker_api.until("it is asked for", lambda: sum(job in jobs for jobs in at.worker_api.renewed) > 2)
        at.worker_api.unsure.clear()
        at.go()
        assert await at.worker_api.result(job) == "n"


async def test_an_outcome_waits_for_the_engine_to_come_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.worker")
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("wait_async", name="n")
        await at.appears("waiting-n")
        with log_line("cannot be reached") as noticed:
            at.worker_api.down = True
            at.go()
            async with asyncio.timeout(WITHIN):
                await noticed.wait()
        at.worker_api.down = False
        assert await at.worker_api.result(job) == "n"
        assert caplog.text.count("cannot be reached") == 1


async def test_an_outcome_is_told_even_when_its_lease_ended_meanwhile(tmp_path: Path) -> None:
    """Only the fence says whether somebody else has the job by now."""
    worker_api = FakeWorkerApi(lease=1.5)
    async with run_worker(tmp_path, worker_api) as at:
        job = at.worker_api.submit("wait_async", name="n")
        await at.appears("waiting-n")
        at.worker_api.down = True
        at.go()
        # Time itself is waited for: a clock that jumps would look like a worker that was paused.
        await SystemClock().sleep(timedelta(seconds=worker_api.lease))
        at.worker_api.down = False
        assert await at.worker_api.result(job) == "n"


async def test_an_outcome_that_its_shard_did_not_answer_for_is_told_again(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        away = at.worker_api.submit("add", a=1)
        at.worker_api.unsure.add(away)
        fine = at.worker_api.submit("add", a=2)
        assert await at.worker_api.result(fine) == 3
        at.worker_api.unsure.clear()
        assert await at.worker_api.result(away) == 2


async def test_a_lease_that_its_shard_did_not_answer_for_lasts_as_long_as_it_did(tmp_path: Path) -> None:
    worker_api = FakeWorkerApi(lease=2.0)
    async with run_worker(tmp_path, worker_api) as at:
        away = at.worker_api.submit("sleep")
        await at.appears("sleeping")
        at.worker_api.unsure.add(away)
        await at.appears("cleaned")
        assert away not in at.worker_api.outcomes
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2


async def test_a_worker_that_was_paused_beyond_its_leases_stops_everything_it_held(tmp_path: Path) -> None:
    clock = JumpingClock()
    async with run_worker(tmp_path, clock=clock, executors=1) as at:
        zombies = {at.worker_api.submit("sleep"), at.worker_api.submit("wait_async", name="n")}
        await at.appears("sleeping")
        await at.appears("waiting-n")
        clock.jump(20)
        at.go()
        late = at.worker_api.submit("add", a=1)
        await at.worker_api.until(
            "a claim asked for before the pause is not trusted", lambda: late in at.worker_api.released
        )
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
        assert not zombies & {*at.worker_api.outcomes, *at.worker_api.released}


async def test_a_drain_lets_jobs_finish_and_takes_no_more(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("wait_async", name="n")
        await at.appears("waiting-n")
        at.agent.drain()
        await at.worker_api.until(
            "it says so", lambda: WorkerState.DRAINING in {one.state for one in at.worker_api.workers}
        )
        late = at.worker_api.submit("add", a=1)
        at.go()
        assert await at.worker_api.result(job) == "n"
        await at.worker_api.until("it leaves", lambda: at.worker_api.left)
        assert late not in at.worker_api.outcomes
        assert late in at.worker_api.released or late in {one.job for one in at.worker_api.waiting}


async def test_a_drain_that_takes_too_long_releases_the_rest(tmp_path: Path) -> None:
    async with run_worker(tmp_path, drain_seconds=0.2) as at:
        kind, stubborn = at.worker_api.submit("sleep"), at.worker_api.submit("swallow")
        await at.appears("sleeping")
        await at.appears("swallowing")
        at.agent.drain()
        await at.worker_api.until("it leaves", lambda: at.worker_api.left)
        assert at.worker_api.released == {kind: False, stubborn: False}
        assert (tmp_path / "cleaned").exists()


async def test_a_worker_that_the_registry_asks_to_drain_finishes_its_jobs_whatever_its_own_patience(
    tmp_path: Path,
) -> None:
    async with run_worker(tmp_path, drain_seconds=0.001) as at:
        job = at.worker_api.submit("wait_async", name="n")
        await at.appears("waiting-n")
        at.worker_api.drain = DrainRequest()
        await at.worker_api.until(
            "it says so", lambda: WorkerState.DRAINING in {one.state for one in at.worker_api.workers}
        )
        beats = len(at.worker_api.workers)
        await at.worker_api.until("it is told again", lambda: len(at.worker_api.workers) > beats + 2)
        late = at.worker_api.submit("add", a=1)
        at.go()
        assert await at.worker_api.result(job) == "n"
        await at.worker_api.until("it leaves", lambda: at.worker_api.left)
        assert late not in at.worker_api.outcomes


async def test_a_request_to_drain_may_be_shortened_until_the_rest_is_given_back(tmp_path: Path) -> None:
    async with run_worker(tmp_path, drain_seconds=600) as at:
        job = at.worker_api.submit("sleep")
        await at.appears("sleeping")
        at.worker_api.drain = DrainRequest()
        await at.worker_api.until(
            "it says so", lambda: WorkerState.DRAINING in {one.state for one in at.worker_api.workers}
        )
        at.worker_api.drain = DrainRequest(0.1)
        await at.worker_api.until("it leaves", lambda: at.worker_api.left)
        assert at.worker_api.released == {job: False}


async def test_a_signal_shortens_a_requested_drain_to_the_workers_own_patience(tmp_path: Path) -> None:
    async with run_worker(tmp_path, drain_seconds=600) as at:
        job = at.worker_api.submit("wait_async", name="n")
        await at.appears("waiting-n")
        at.worker_api.drain = DrainRequest()
        await at.worker_api.until(
            "it says so", lambda: WorkerState.DRAINING in {one.state for one in at.worker_api.workers}
        )
        at.agent.drain()
        beats = len(at.worker_api.workers)
        await at.worker_api.until(
            "it goes on", lambda: len(at.worker_api.workers) > beats + 2 or at.worker_api.released
        )
        at.go()
        await at.worker_api.until("it leaves", lambda: at.worker_api.left)
        assert (at.worker_api.released, [*at.worker_api.outcomes]) == ({}, [job])


async def test_a_second_drain_releases_at_once(tmp_path: Path) -> None:
    async with run_worker(tmp_path, grace_seconds=60) as at:
        job = at.worker_api.submit("swallow")
        await at.appears("swallowing")
        at.agent.drain()
        at.agent.drain()
        await at.worker_api.until("it leaves", lambda: at.worker_api.left)
        assert at.worker_api.released == {job: False}


class HandsOutAgain(FakeWorkerApi):
    """What is given back is there for the next claim, whose answer takes a while to arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.given_back: set[Lease] = set()

    async def claim(self, *asked: Any) -> list[Claim]:
        claims = await super().claim(*asked)
        for _ in range(50):
            await asyncio.sleep(0)
        return claims

    async def release(self, leases: Sequence[Lease], *, suspects: bool = False) -> list[Refusal]:
        self.given_back.update(leases)
        back = [one for one in self.claimed if Lease(one.job, one.fence) in leases]
        self.waiting += [replace(one, fence=one.fence + 1) for one in back]
        return await super().release(leases, suspects=suspects)


async def test_a_job_that_a_drain_gives_back_is_not_claimed_again_by_the_same_worker(tmp_path: Path) -> None:
    """Its claim would be answered when nobody is left to give the job back, which then waits out its lease."""
    worker_api = HandsOutAgain()
    async with run_worker(tmp_path, worker_api, drain_seconds=0.3) as at:
        job = worker_api.submit("sleep")
        await at.appears("sleeping")
        at.agent.drain()
        await worker_api.until("it leaves", lambda: worker_api.left)
    assert [one.job for one in worker_api.waiting] == [job]
    assert {Lease(one.job, one.fence) for one in worker_api.claimed} == worker_api.given_back


AGENT = f"""
import asyncio
from penstock.model.clock import SystemClock
from penstock.worker.agent.agent import Agent
from penstock.worker.agent.agent import run
from tests.services.fake_worker_api import FakeWorkerApi
from tests.services.running_worker import settings
from tests.watch import until_ended, until_one_ended, until_there

async def main():
    worker_api = FakeWorkerApi()
    worker_api.submit("block")
    worker_api.submit("stubborn")
    await run(Agent({APP!r}, worker_api, settings(), SystemClock()))

asyncio.run(main())
"""


def agent_process(folder: Path) -> "subprocess.Popen[bytes]":
    with handlers_in(folder):
        return subprocess.Popen([sys.executable, "-c", AGENT], cwd=Path(__file__).parents[2])


async def jobs_run(folder: Path) -> None:
    """Return once both jobs of the agent's process run."""
    async with asyncio.timeout(WITHIN):
        await until_there(folder / "blocking")
        await until_there(folder / "stubborn")


async def test_nothing_outlives_an_agent_that_is_killed(tmp_path: Path) -> None:
    process = agent_process(tmp_path)
    try:
        await jobs_run(tmp_path)
        below = [one.pid for one in psutil.Process(process.pid).children()]
    finally:
        process.kill()
        process.wait(WITHIN)
    async with asyncio.timeout(WITHIN):
        await until_ended(below)


async def test_a_signal_drains_a_worker_in_the_foreground(tmp_path: Path) -> None:
    process = agent_process(tmp_path)
    await jobs_run(tmp_path)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(WITHIN) == 0
