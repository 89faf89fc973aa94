"""Several apps over one store: each autoscaler acts for the job types of its own app, and for no others."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from penstock.config import FleetSettings, Settings
from penstock.engine import Engine
from penstock.model.fleets import Fleet
from penstock.model.job import Job
from penstock.model.lifecycle import State
from penstock.model.workers import JobType
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import ADD, submit
from tests.services.fake_fleets import APP, FakeFleets, World

BILLING = "billing:app"
BILL = JobType(name="bill", queue="bills")
NO_AUTOSCALER = "no worker runs this type, and no autoscaler acts for it"


@pytest.fixture
def settings() -> Settings:
    return Settings(fleet=FleetSettings(max=5))


@pytest.fixture
async def engine(engine: Engine) -> Engine:
    await engine.catalog.declare([ADD], app=APP)
    await engine.catalog.declare([BILL], app=BILLING)
    return engine


@pytest.fixture
def world(engine: Engine, clock: SimulatedClock) -> World:
    """The autoscaler of the shop alone."""
    return World(engine, clock, FakeFleets(clock), [ADD])


def bring_billing(world: World, *, types: tuple[JobType, ...] = (BILL,)) -> FakeFleets:
    """An autoscaler of the other app, with workers of its own."""
    fleets = FakeFleets(world.clock, app=BILLING, types=types)
    world.hosts.append(fleets)
    world.autoscalers.append(world.autoscaler("billing", fleets))
    return fleets


async def why(engine: Engine, job: Job) -> str | None:
    return (await engine.jobs.item(await engine.jobs.get(job.id))).reason


async def test_no_worker_is_started_for_jobs_that_only_another_app_has(world: World) -> None:
    jobs = [await submit(world.engine, "bill", {}) for _ in range(100)]
    await world.run(20)
    assert world.fleets.most == 0
    assert await why(world.engine, jobs[0]) == NO_AUTOSCALER
    for _ in range(10):
        await submit(world.engine)
    await world.run(30)
    assert await world.jobs() == {State.QUEUED: 100, State.SUCCEEDED: 10}


async def test_each_app_has_an_autoscaler_that_acts_for_its_own_jobs(world: World) -> None:
    billing = bring_billing(world)
    for _ in range(20):
        await submit(world.engine)
        await submit(world.engine, "bill", {})
    await world.run(1)
    assert [autoscaler.acts for autoscaler in world.autoscalers] == [True, True]
    await world.run(30)
    assert await world.jobs() == {State.SUCCEEDED: 40}
    assert {order.app for order, _ in world.fleets.orders} == {APP}
    assert {order.app for order, _ in billing.orders} == {BILLING}
    assert {order.environment["PENSTOCK_WORKER_APP"] for order, _ in billing.orders} == {BILLING}
    await world.run(30)
    assert (world.size(), len(billing.alive())) == (0, 0)


async def test_the_default_fleet_of_a_second_app_has_a_name_and_orders_of_its_own(world: World) -> None:
    billing = bring_billing(world)
    await world.run(3)
    listed = {item.name: item for item in await world.engine.fleets.list()}
    assert {name: item.app for name, item in listed.items()} == {"default": APP, "default.billing.app": BILLING}
    await world.engine.fleets.scale("default.billing.app", 2)
    await world.run(5)
    assert (world.size(), len(billing.alive())) == (0, 2)
    assert {order.fleet for order, _ in billing.orders} == {"default.billing.app"}
    await world.engine.fleets.scale("default", 1)
    await world.run(5)
    assert (world.size(), len(billing.alive())) == (1, 2)


async def test_a_fleet_keeps_its_name_when_the_autoscalers_start_again_in_another_order(world: World) -> None:
    bring_billing(world)
    await world.run(3)
    for autoscaler in world.autoscalers:
        await autoscaler.close()
    world.clock.advance(timedelta(minutes=50))
    world.autoscalers = [world.autoscaler("later", fleets) for fleets in reversed(world.hosts)]
    await world.run(3)
    listed = {item.name: item.app for item in await world.engine.fleets.list()}
    assert listed == {"default": APP, "default.billing.app": BILLING}


async def test_of_two_autoscalers_of_a_second_app_one_acts(world: World) -> None:
    billing = bring_billing(world)
    world.autoscalers.append(world.autoscaler("billing too", billing))
    await submit(world.engine, "bill", {})
    await world.run(10)
    assert [autoscaler.acts for autoscaler in world.autoscalers] == [True, True, False]
    assert (len(billing.workers), await world.jobs()) == (1, {State.SUCCEEDED: 1})


async def test_a_fleet_beside_a_job_type_is_run_by_the_autoscaler_of_its_app_alone(world: World) -> None:
    beside = replace(BILL, fleet=Fleet(min=1, max=2))
    await world.engine.catalog.declare([beside], app=BILLING)
    await world.run(5)
    assert world.fleets.most == 0
    (item,) = [one for one in await world.engine.fleets.list() if one.name == "bills"]
    assert (item.reason, item.autoscaler) == (None, None)
    billing = bring_billing(world, types=(beside,))
    await world.run(5)
    assert (world.size(), [worker.order.fleet for worker in billing.alive()]) == (0, ["bills"])


async def test_a_fleet_says_that_no_autoscaler_runs_it_once_none_does(world: World) -> None:
    billing = bring_billing(world)
    job = await submit(world.engine, "bill", {})
    billing.down = True
    await world.run(2)
    billing.down = False
    await world.run(1)
    assert await why(world.engine, job) == "scaling up"
    gone = world.autoscalers.pop()
    await gone.close()
    for worker in billing.alive():
        worker.end(1)
    await world.run(40)
    assert await why(world.engine, job) == NO_AUTOSCALER
    item = await world.engine.fleets.get("default.billing.app")
    assert (item.reason, item.autoscaler, item.desired) == ("no autoscaler runs this fleet", None, None)
    assert (await world.engine.fleets.get("default")).autoscaler == "a"


async def test_a_type_that_moved_to_another_app_does_not_hold_the_fleet_of_the_one_that_had_it(world: World) -> None:
    await world.engine.catalog.declare([BILL], timedelta(minutes=30), app=APP)
    await submit(world.engine)
    await world.run(90)
    started = len(world.fleets.workers)
    # What newer code of the same app declares, its next worker may have; what that of another app does, it has not.
    await world.engine.catalog.declare([BILL], app=BILLING)
    for _ in range(50):
        await submit(world.engine, "bill", {})
    await world.run(60)
    assert (world.size(), len(world.fleets.workers)) == (0, started)


async def test_types_of_which_no_app_is_known_are_served_by_every_autoscaler(world: World) -> None:
    other = JobType(name="other", queue="other")
    world.types = [*world.types, other]
    await world.engine.catalog.declare([other])
    await submit(world.engine, "other", {})
    await world.run(10)
    assert await world.jobs() == {State.SUCCEEDED: 1}
