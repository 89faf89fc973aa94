"""What every fleet backend must do: a pytest class that the test of a backend subclasses, with fixtures and hooks.

Its workers are real, and work for a real server. Their app has one job type that matters here: `hold`, without params
and never retried, which runs until the hook `let_go` is called with the job's id.
"""

import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

import pytest

from penstock.autoscaler.backends.seam import Condition, FleetBackend, FleetMember, LaunchSpec
from penstock.client import AsyncClient
from penstock.model.clock import SystemClock, seconds
from penstock.model.lifecycle import State
from penstock.model.workers import WorkerState

T = TypeVar("T")

WITHIN = 90.0
"""Seconds any one wait may take. Only a broken backend ever gets there."""

LOOK_EVERY = seconds(0.05)
LITTLE = seconds(0.2)
LONG = timedelta(days=1)
ALIVE = {Condition.STARTING, Condition.RUNNING}

RNG = Random()


async def eventually(what: str, ask: Callable[[], Awaitable[T | None]]) -> T:
    """The first true answer, asked for every 50 ms until a deadline.

    Only for what a fleet backend or a server answers when it is asked and reports in no other way: the condition of a
    member, the state of a worker, that a job runs. `AsyncClient.wait` waits for a job's end.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + WITHIN
    while clock.monotonic() < deadline:
        if answer := await ask():
            return answer
        await clock.sleep(LOOK_EVERY)
    raise AssertionError(f"{what}: not within {WITHIN:g} s")


class Yard(ABC):
    """Where the workers of a test work: hooks that a backend's test gives, and what can be asked by them."""

    client: AsyncClient
    """Of the server that the workers of `order` join."""

    def __init__(self) -> None:
        self.fleet = f"fleet-{RNG.getrandbits(32):08x}"

    @abstractmethod
    def order(self, fleet: str) -> LaunchSpec:
        """Hook: workers for a queue that has the fleet's name, which join the server of `client`."""

    @abstractmethod
    def unusable(self, fleet: str) -> LaunchSpec:
        """Hook: workers for an app that cannot be imported."""

    @abstractmethod
    def let_go(self, job: str) -> None:
        """Hook: let this job end."""

    @abstractmethod
    async def kill(self, member: FleetMember) -> None:
        """Hook: SIGKILL, from outside, for the process that runs the member."""

    async def has_joined(self, name: str) -> bool:
        return any(one.id == name for one in await self.client.workers())

    async def is_draining(self, name: str) -> bool:
        return any(one.id == name and one.state is WorkerState.DRAINING for one in await self.client.workers())

    async def wait_for_joined(self, names: Sequence[str]) -> None:
        for name in names:
            await eventually(f"{name} has joined", lambda name=name: self.has_joined(name))  # type: ignore[misc]

    async def submit(self) -> str:
        """A job of the fleet's queue that runs until it is let go; its id."""
        return (await self.client.submit("hold", queue=self.fleet)).id

    async def submit_running(self) -> str:
        """The same, and it runs now."""
        job = await self.submit()
        await self.wait_for_state(job, State.RUNNING)
        return job

    async def wait_for_state(self, job: str, state: State) -> None:
        async def ask() -> bool:
            return (await self.client.get(job)).state == state

        await eventually(f"job {job} is {state}", ask)


class FleetContract(ABC):
    """The promises of `penstock.autoscaler.backends.seam`, each as a test."""

    @pytest.fixture
    @abstractmethod
    def fleets(self) -> Any:
        """The backend; afterwards nothing that the test started is left."""

    @pytest.fixture
    @abstractmethod
    def yard(self) -> Any:
        """A Yard for one test."""

    async def wait_for_end(self, fleets: FleetBackend, fleet: str, name: str) -> FleetMember:
        """What is told of a member once it has ended."""

        async def ask() -> FleetMember | None:
            here = [one for one in await fleets.members(fleet) if one.name == name]
            return here[0] if here and here[0].condition is Condition.ENDED else None

        return await eventually(f"{name} has ended", ask)

    async def start_joined(self, fleets: FleetBackend, yard: Yard, count: int = 1) -> list[str]:
        names = await fleets.start(yard.order(yard.fleet), count)
        await yard.wait_for_joined(names)
        return names

    async def test_a_fleet_that_was_never_started_has_no_members(self, fleets: FleetBackend, yard: Yard) -> None:
        assert await fleets.members(yard.fleet) == []

    async def test_workers_join_under_the_names_they_were_given(self, fleets: FleetBackend, yard: Yard) -> None:
        names = await fleets.start(yard.order(yard.fleet), 2)
        assert len(set(names)) == 2
        await yard.wait_for_joined(names)
        members = await fleets.members(yard.fleet)
        assert [one.name for one in members] == sorted(names)
        assert {one.condition for one in members} <= ALIVE
        assert all(one.exit_status is None for one in members)

    async def test_a_worker_takes_jobs_of_its_fleets_queue(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await self.start_joined(fleets, yard)
        job = await yard.submit_running()
        assert (await yard.client.get(job)).worker == name
        yard.let_go(job)
        assert (await yard.client.wait(job, timeout=WITHIN)).state == State.SUCCEEDED

    async def test_an_idle_worker_that_is_stopped_ends_with_status_0(self, fleets: FleetBackend, yard: Yard) -> None:
        [stopped, other] = await self.start_joined(fleets, yard, 2)
        await fleets.stop(yard.fleet, [stopped])
        end = await self.wait_for_end(fleets, yard.fleet, stopped)
        assert end.exit_status == 0
        assert not await yard.has_joined(stopped)
        [left] = await fleets.members(yard.fleet)
        assert (left.name, left.condition in ALIVE) == (other, True)

    async def test_an_end_is_told_once(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await self.start_joined(fleets, yard)
        await fleets.stop(yard.fleet, [name])
        await self.wait_for_end(fleets, yard.fleet, name)
        assert await fleets.members(yard.fleet) == []

    async def test_a_busy_worker_that_is_stopped_finishes_its_job(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await self.start_joined(fleets, yard)
        job = await yard.submit_running()
        await fleets.stop(yard.fleet, [name])
        await eventually("it drains", lambda: yard.is_draining(name))
        await fleets.stop(yard.fleet, [name])
        await fleets.stop(yard.fleet, [name], LONG)
        [member] = await fleets.members(yard.fleet)
        assert member.condition is Condition.ENDING
        later = await yard.submit()
        yard.let_go(job)
        assert (await self.wait_for_end(fleets, yard.fleet, name)).exit_status == 0
        done = await yard.client.get(job)
        assert (done.state, done.attempt, done.fence) == (State.SUCCEEDED, 1, 1)
        assert (await yard.client.get(later)).state == State.QUEUED
        await yard.client.cancel(later)

    async def test_out_of_patience_a_worker_gives_its_job_back_and_ends(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await self.start_joined(fleets, yard)
        job = await yard.submit_running()
        held = await yard.client.get(job)
        await fleets.stop(yard.fleet, [name])
        await fleets.stop(yard.fleet, [name], LITTLE)
        assert (await self.wait_for_end(fleets, yard.fleet, name)).exit_status == 0
        await yard.wait_for_state(job, State.QUEUED)
        back = await yard.client.get(job)
        # Given back: had its lease run out, the fence would be a higher one.
        assert (back.fence, back.error) == (held.fence, None)
        await yard.client.cancel(job)

    async def test_a_worker_that_is_killed_is_told_of_with_its_signal(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await self.start_joined(fleets, yard)
        [member] = await fleets.members(yard.fleet)
        await yard.kill(member)
        end = await self.wait_for_end(fleets, yard.fleet, name)
        assert end.exit_status in {-signal.SIGKILL, 128 + signal.SIGKILL}
        assert end.detail

    async def test_stopping_who_is_not_there_is_fine(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await self.start_joined(fleets, yard)
        await fleets.stop(yard.fleet, ["nobody", name])
        await self.wait_for_end(fleets, yard.fleet, name)
        await fleets.stop(yard.fleet, [name], LITTLE)
        await fleets.stop("no-such-fleet", [name])

    async def test_a_worker_can_be_stopped_before_it_has_joined(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await fleets.start(yard.order(yard.fleet), 1)
        await fleets.stop(yard.fleet, [name])
        await self.wait_for_end(fleets, yard.fleet, name)
        assert not await yard.has_joined(name)

    async def test_an_app_that_cannot_be_imported_is_told_of(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await fleets.start(yard.unusable(yard.fleet), 1)
        end = await self.wait_for_end(fleets, yard.fleet, name)
        assert end.exit_status not in {0, None}
        assert end.detail
        assert not await yard.has_joined(name)

    async def test_fleets_do_not_see_each_other(self, fleets: FleetBackend, yard: Yard) -> None:
        [name] = await self.start_joined(fleets, yard)
        [other] = await fleets.start(yard.order(f"{yard.fleet}-other"), 1)
        assert other != name
        await fleets.stop(yard.fleet, [other], LITTLE)
        assert [one.name for one in await fleets.members(yard.fleet)] == [name]
        [member] = await fleets.members(f"{yard.fleet}-other")
        assert (member.name, member.condition in ALIVE) == (other, True)
