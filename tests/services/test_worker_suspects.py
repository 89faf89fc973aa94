"""Jobs whose workers were lost before: what a worker does so that only the guilty one is charged."""

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.worker.agent import attempts
from tests.services.fake_reach import FakeReach
from tests.services.worker_case import Working, working


async def busy(at: Working, name: str = "n") -> str:
    """A job that runs until `go`."""
    job = at.reach.submit("wait_async", name=name)
    await at.appears(f"waiting-{name}")
    return job


def suspect(reach: FakeReach, name: str) -> str:
    """A job that must have the worker to itself, and then runs until `go`."""
    return reach.submit("wait_async", alone_in_worker=True, lost=2, name=name)


async def held(at: Working, job: str) -> None:
    await at.reach.until("it is held, and has not begun", lambda: at.reach.begun.get(job) is False)


async def test_an_ordinary_job_has_begun_when_it_is_renewed(tmp_path: Path) -> None:
    async with working(tmp_path) as at:
        job = await busy(at)
        await at.reach.until("it is renewed", lambda: at.reach.begun.get(job) is True)


async def test_a_job_that_was_lost_before_starts_once_the_engine_knows_that_it_does(tmp_path: Path) -> None:
    async with working(tmp_path) as at:
        job = at.reach.submit("wait_async", name="n", lost=1)
        at.reach.unsure.add(job)
        await at.reach.until("it is told", lambda: at.reach.begun.get(job) is True)
        assert not (tmp_path / "waiting-n").exists()
        at.reach.unsure.clear()
        at.go()
        assert await at.reach.result(job) == "n"


async def test_a_program_that_was_lost_before_starts_once_the_engine_knows_that_it_does(tmp_path: Path) -> None:
    async with working(tmp_path) as at:
        job = at.reach.submit("shout", lost=1)
        at.reach.unsure.add(job)
        await at.reach.until("it is told", lambda: at.reach.begun.get(job) is True)
        assert at.reach.outcomes == {}
        at.reach.unsure.clear()
        assert await at.reach.result(job) == {"got": "declared"}


async def test_a_job_that_must_be_alone_waits_for_the_others_and_nothing_starts_beside_it(tmp_path: Path) -> None:
    async with working(tmp_path) as at:
        await busy(at)
        job = at.reach.submit("sleep", alone_in_worker=True, lost=2, timeout=2.0)
        await held(at, job)
        late = at.reach.submit("add", a=1)
        assert not (tmp_path / "sleeping").exists()
        at.go()
        await at.appears("sleeping")
        assert at.reach.begun[job] is True
        later = at.reach.submit("add", a=1)
        await at.reach.outcome(job)
        assert not {late, later} & set(at.reach.outcomes)
        await at.reach.until(
            "each is given back, or runs afterwards", lambda: {late, later} <= {*at.reach.released, *at.reach.outcomes}
        )


async def test_of_several_that_must_be_alone_one_stays_and_the_others_are_given_back(tmp_path: Path) -> None:
    reach = FakeReach()
    first, second, third = (suspect(reach, name=f"{number}") for number in range(3))
    ordinary = reach.submit("add", a=1)
    async with working(tmp_path, reach) as at:
        assert await at.reach.result(ordinary) == 2
        await at.appears("waiting-0")
        assert at.reach.released == {second: False, third: False}
        at.go()
        assert await at.reach.result(first) == "0"
        assert await at.reach.result(suspect(reach, name="4")) == "4"


async def test_one_that_waits_to_be_alone_can_be_cancelled(tmp_path: Path) -> None:
    async with working(tmp_path) as at:
        neighbour, job = await busy(at), suspect(at.reach, name="s")
        await held(at, job)
        at.reach.cancelling.add(job)
        assert (await at.reach.outcome(job)).cancelled
        assert await at.reach.result(at.reach.submit("add", a=1)) == 2
        at.go()
        assert await at.reach.result(neighbour) == "n"
        assert not (tmp_path / "waiting-s").exists()


async def test_a_drain_gives_back_what_waits_to_be_alone(tmp_path: Path) -> None:
    async with working(tmp_path) as at:
        neighbour, job = await busy(at), suspect(at.reach, name="s")
        await held(at, job)
        at.agent.drain()
        await at.reach.until("it is given back", lambda: job in at.reach.released)
        at.go()
        assert await at.reach.result(neighbour) == "n"
        assert not (tmp_path / "waiting-s").exists()


async def test_one_that_waits_too_long_to_be_alone_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SOLE_PATIENCE", timedelta(milliseconds=50))
    async with working(tmp_path) as at:
        await busy(at)
        job = suspect(at.reach, name="s")
        await at.reach.until("it is given back", lambda: job in at.reach.released)
        assert await at.reach.result(at.reach.submit("add", a=1)) == 2
