"""Fleets on a real engine: what becomes of containers that are stopped, killed, orphaned or cannot be started."""

import asyncio
import random
import signal
import socket
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from penstock.autoscaler.backends import Condition, LaunchSpec
from penstock.autoscaler.backends.containers import ContainerDefaults, ContainerFleets
from penstock.autoscaler.backends.containers.backend import HEARS_AFTER
from penstock.autoscaler.backends.containers.engine import ContainerEngine
from penstock.model.errors import FleetUnavailable
from penstock.testing.clock import SimulatedClock
from penstock.testing.fleet_contract import eventually
from servers import Podman
from servers.podman import IMAGE
from tests import containers
from tests.containers import CLOCK, DEAF, FLEET, GREEDY, Place, conditions, ends, statuses

pytestmark = pytest.mark.slow

podman = containers.podman
place = containers.place

AT_ONCE = timedelta()
MINUTES = timedelta(minutes=6)
NO_APP = "no:app"


# -- out and in


async def test_only_those_that_are_named_are_stopped(place: Place) -> None:
    fleets = place.fleets()
    first, second = await fleets.start(place.order(), 2)
    await place.ready(first, second)
    place.go()
    await fleets.stop(FLEET, [first, "nobody"])
    assert statuses(await ends(fleets, first)) == [0]
    assert await conditions(fleets) == {second: Condition.RUNNING}


async def test_a_container_shows_whose_it_is(place: Place) -> None:
    [name] = await place.fleets().start(place.order(), 1)
    [seen] = await place.containers()
    wanted = {"penstock.fleet": FLEET, "penstock.worker": name, "penstock.system": place.system, "team": "tests"}
    assert wanted.items() <= seen.labels.items()
    assert seen.name == name


async def test_another_fleet_and_another_system_on_the_same_engine_are_not_seen(place: Place, podman: Podman) -> None:
    await place.fleets().start(place.order(), 1)
    assert await place.fleets().members("other") == []
    other = ContainerFleets(podman.url, CLOCK, random.Random(), system="other")
    assert await other.members(FLEET) == []
    await other.close()


# -- how they end


async def test_a_killed_container_is_told_with_its_status_and_last_words_and_collected(place: Place) -> None:
    fleets = place.fleets()
    killed, lives = await fleets.start(place.order(), 2)
    await place.ready(killed, lives)
    [seen] = [seen for seen in await place.containers() if seen.name == killed]
    await place.engine.signal(seen.id, "SIGKILL")
    told = (await ends(fleets, killed))[killed]
    assert told.exit_status == 128 + signal.SIGKILL
    assert "was killed by SIGKILL" in told.detail
    assert f"I am {killed}" in told.detail
    assert await conditions(fleets) == {lives: Condition.RUNNING}
    assert [seen.name for seen in await place.containers()] == [lives]


async def test_a_container_above_its_memory_is_told_as_such(place: Place) -> None:
    fleets = place.fleets()
    [name] = await fleets.start(place.order(GREEDY, memory_mib=48), 1)
    told = (await ends(fleets, name))[name]
    assert told.exit_status == 128 + signal.SIGKILL
    assert "was killed above its limit of 48 MiB of memory" in told.detail


async def test_what_could_not_be_removed_is_told_once_and_removed_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleets = place.fleets()
    [name] = await fleets.start(place.order("raise SystemExit(5)"), 1)

    async def refuse(self: ContainerEngine, container: str) -> None:
        raise FleetUnavailable("not now")

    with monkeypatch.context() as patch:
        patch.setattr(ContainerEngine, "remove", refuse)
        assert statuses(await ends(fleets, name)) == [5]
        assert await fleets.members(FLEET) == []
    assert len(await place.containers()) == 1
    assert await fleets.members(FLEET) == []
    assert await place.containers() == []


async def test_a_signal_for_a_container_that_does_not_run_is_no_error(place: Place) -> None:
    container = await place.created("mail-1")
    await place.engine.signal(container, "SIGTERM")
    await place.engine.remove(container)
    await place.engine.signal(container, "SIGTERM")


# -- patience


async def test_a_member_that_outstays_its_patience_is_told_to_hurry(place: Place) -> None:
    fleets = place.fleets()
    [name] = await fleets.start(place.order(), 1)
    await place.ready(name)
    await fleets.stop(FLEET, [name], AT_ONCE)
    assert statuses(await ends(fleets, name)) == [3]


async def test_a_drain_goes_on_until_it_is_asked_for_with_less_patience(place: Place) -> None:
    clock = SimulatedClock(datetime.now(UTC))
    fleets = place.fleets(clock)
    [name] = await fleets.start(place.order(), 1)
    await place.ready(name)
    clock.advance(HEARS_AFTER)
    await fleets.stop(FLEET, [name])
    clock.advance(timedelta(days=1))
    assert await conditions(fleets) == {name: Condition.ENDING}
    await fleets.stop(FLEET, [name], timedelta(seconds=5))
    await fleets.stop(FLEET, [name], timedelta(hours=1))
    assert await conditions(fleets) == {name: Condition.ENDING}
    clock.advance(timedelta(seconds=5))
    assert statuses(await ends(fleets, name)) == [3]


async def test_a_member_that_heeds_nothing_is_killed_in_the_end(place: Place) -> None:
    clock = SimulatedClock(datetime.now(UTC))
    fleets = place.fleets(clock)
    [name] = await fleets.start(place.order(DEAF), 1)
    await place.ready(name)
    clock.advance(HEARS_AFTER)
    await fleets.stop(FLEET, [name], AT_ONCE)
    assert await conditions(fleets) == {name: Condition.ENDING}
    assert await conditions(fleets) == {name: Condition.ENDING}
    clock.advance(MINUTES)
    assert statuses(await ends(fleets, name)) == [128 + signal.SIGKILL]


async def test_a_member_that_was_just_started_is_asked_to_drain_once_it_can_hear(place: Place) -> None:
    clock = SimulatedClock(datetime.now(UTC))
    fleets = place.fleets(clock)
    [name] = await fleets.start(place.order(), 1)
    await fleets.stop(FLEET, [name])
    assert await conditions(fleets) == {name: Condition.ENDING}
    assert [seen.name for seen in await place.containers()] == [f"{name}.leaving"]
    await place.ready(name)
    place.go()
    clock.advance(HEARS_AFTER)
    assert statuses(await ends(fleets, name)) == [0]


async def test_it_is_asked_also_if_nobody_looks(place: Place) -> None:
    clock = SimulatedClock(datetime.now(UTC))
    fleets = place.fleets(clock)
    [name] = await fleets.start(place.order(), 1)
    await place.ready(name)
    await fleets.stop(FLEET, [name])
    await clock.wait_for_sleepers()
    clock.advance(HEARS_AFTER)
    await eventually("it is asked to drain", partial(_is_named, place, f"{name}.draining"))
    place.go()
    assert statuses(await ends(fleets, name)) == [0]


async def test_looks_at_the_same_time_ask_only_once(place: Place) -> None:
    clock = SimulatedClock(datetime.now(UTC))
    fleets = place.fleets(clock)
    [name] = await fleets.start(place.order(), 1)
    await place.ready(name)
    clock.advance(HEARS_AFTER)
    await asyncio.gather(*(fleets.stop(FLEET, [name]) for _ in range(3)))
    place.go()
    assert statuses(await ends(fleets, name)) == [0]


async def _is_named(place: Place, name: str) -> bool:
    return [seen.name for seen in await place.containers()] == [name]


# -- autoscalers come and go


async def test_an_autoscaler_that_is_started_again_adopts_what_runs(place: Place) -> None:
    before = place.fleets()
    names = await before.start(place.order(), 2)
    await place.ready(*names)
    await before.close()
    after = place.fleets()
    assert await conditions(after) == dict.fromkeys(names, Condition.RUNNING)
    place.go()
    await after.stop(FLEET, names)
    assert statuses(await ends(after, *names)) == [0, 0]


async def test_a_drain_is_known_to_the_next_autoscaler_which_does_not_hurry_it(place: Place) -> None:
    clock = SimulatedClock(datetime.now(UTC))
    before, after = place.fleets(clock), place.fleets(clock)
    [name] = await before.start(place.order(), 1)
    await place.ready(name)
    clock.advance(HEARS_AFTER)
    await before.stop(FLEET, [name])
    await before.close()
    assert await conditions(after) == {name: Condition.ENDING}
    clock.advance(HEARS_AFTER)
    await after.stop(FLEET, [name])
    place.go()
    assert statuses(await ends(after, name)) == [0]


async def test_a_container_whose_autoscaler_died_before_starting_it_is_collected(place: Place) -> None:
    await place.created("mail-1")
    clock = SimulatedClock(datetime.now(UTC))
    fleets = place.fleets(clock)
    assert await conditions(fleets) == {"mail-1": Condition.STARTING}
    clock.advance(MINUTES)
    told = await ends(fleets, "mail-1")
    assert "was created and never started" in told["mail-1"].detail
    assert await place.containers() == []


async def test_a_container_that_is_stopped_before_it_is_started_drains_when_it_is(place: Place) -> None:
    container = await place.created("mail-1")
    clock = SimulatedClock(datetime.now(UTC))
    fleets = place.fleets(clock)
    await fleets.stop(FLEET, ["mail-1"])
    assert await conditions(fleets) == {"mail-1": Condition.ENDING}
    await place.engine.start(container)
    assert await conditions(fleets) == {"mail-1": Condition.ENDING}
    await place.ready("mail-1")
    place.go()
    clock.advance(HEARS_AFTER)
    assert statuses(await ends(fleets, "mail-1")) == [0]


async def test_a_start_whose_answer_was_lost_leaves_a_member_and_kills_none(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ContainerEngine.start

    async def lose_answer(self: ContainerEngine, container: str) -> None:
        await start(self, container)
        raise FleetUnavailable("no answer")

    fleets = place.fleets()
    with monkeypatch.context() as patch:
        patch.setattr(ContainerEngine, "start", lose_answer)
        with pytest.raises(FleetUnavailable, match="no answer"):
            await fleets.start(place.order(), 1)
    assert list((await conditions(fleets)).values()) == [Condition.RUNNING]


# -- what cannot be started


async def test_an_image_that_cannot_be_had_is_told_with_what_to_do(place: Place) -> None:
    order = LaunchSpec(fleet=FLEET, app=NO_APP, image="registry.invalid/penstock:1")
    with pytest.raises(FleetUnavailable, match=r"image registry\.invalid/penstock:1 is not there: build or pull it"):
        await place.fleets().start(order, 2)
    assert await place.containers() == []


async def test_a_fleet_without_an_image_is_told_that_it_needs_one(podman: Podman) -> None:
    fleets = ContainerFleets(podman.url, CLOCK, random.Random())
    with pytest.raises(FleetUnavailable, match="fleet mail has no image"):
        await fleets.start(LaunchSpec(fleet=FLEET, app=NO_APP), 1)
    await fleets.close()


async def test_a_command_that_the_image_lacks_is_told_and_leaves_nothing_behind(place: Place) -> None:
    order = LaunchSpec(fleet=FLEET, app=NO_APP, command=("no-such-program",))
    with pytest.raises(FleetUnavailable, match="no-such-program"):
        await place.fleets(init=False).start(order, 2)
    assert await place.containers() == []
    fleets = place.fleets()
    [name] = await fleets.start(order, 1)
    assert "No such file or directory" in (await ends(fleets, name))[name].detail


async def test_those_that_could_be_started_are_named_when_others_could_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, calls = ContainerEngine.create, []

    async def fail_once(self: ContainerEngine, name: str, body: dict[str, object]) -> str:
        calls.append(name)
        if len(calls) == 1:
            raise FleetUnavailable("no room")
        return await create(self, name, body)

    monkeypatch.setattr(ContainerEngine, "create", fail_once)
    names = await place.fleets().start(place.order(), 2)
    assert names == calls[1:]


# -- an engine that cannot be asked


async def test_an_engine_that_is_not_there_is_told_by_its_address(tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/nobody.sock"
    fleets = ContainerFleets(url, CLOCK, random.Random(), around=ContainerDefaults(image=IMAGE))
    for call in (
        fleets.members(FLEET),
        fleets.start(LaunchSpec(fleet=FLEET, app=NO_APP), 1),
        fleets.stop(FLEET, ["mail-1"]),
    ):
        with pytest.raises(FleetUnavailable, match=f"no container engine answers at {url}"):
            await call
    await fleets.close()


async def test_an_address_of_no_known_kind_is_told(tmp_path: Path) -> None:
    fleets = ContainerFleets("carrier-pigeon", CLOCK, random.Random())
    with pytest.raises(FleetUnavailable, match="carrier-pigeon"):
        await fleets.members(FLEET)


async def test_an_engine_that_does_not_answer_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        engine = ContainerEngine(f"unix://{tmp_path}/silent.sock", within=timedelta(milliseconds=200))
        with pytest.raises(FleetUnavailable, match=r"did not list its containers within 0\.2 s"):
            await engine.containers({})
        await engine.close()


async def test_a_fleet_can_be_asked_again_when_its_engine_is_back(place: Place, podman: Podman) -> None:
    fleets = place.fleets()
    [name] = await fleets.start(place.order(), 1)
    podman.kill()
    try:
        with pytest.raises(FleetUnavailable):
            await fleets.members(FLEET)
    finally:
        podman.start()
    assert await conditions(fleets) == {name: Condition.RUNNING}
