"""What a worker's container is made of, how its name tells how far it is, and how its end is told."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.autoscaler.backends import Condition, LaunchSpec
from penstock.autoscaler.backends.containers.container import (
    WORKER,
    ContainerDefaults,
    StopPlan,
    StopStage,
    condition,
    container_name,
    default_command,
    ended,
    environment,
    hurried,
    recipe,
    stop_plan_of,
)
from penstock.autoscaler.backends.containers.engine import ContainerExit, ContainerRow

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DRAINING = StopPlan(StopStage.DRAINING)


def seen(state: str, name: str = "mail-1", created_at: datetime = NOW) -> ContainerRow:
    return ContainerRow("0123456789abcdef", name, "shop:3", state, {WORKER: "mail-1"}, created_at)


def ending(status: int, *, out_of_memory: bool = False, memory_mib: int = 0, said: str = "") -> ContainerExit:
    return ContainerExit(status, out_of_memory, memory_mib * 1024 * 1024, "", said)


# -- the recipe


def test_a_worker_is_started_for_the_app_the_queues_and_the_capacity_of_its_fleet():
    order = LaunchSpec(fleet="mail", app="shop.jobs:app", queues=("mail", "bulk"), capacity=4)
    command = ("penstock", "worker", "shop.jobs:app", "--queue", "mail", "--queue", "bulk", "--capacity", "4")
    assert default_command(order) == command


def test_the_command_does_not_depend_on_the_entrypoint_of_the_image():
    body = recipe(LaunchSpec(fleet="mail", app="a:b"), "mail-1", "shop:3", {}, ContainerDefaults())
    assert (body["Entrypoint"], body["Cmd"]) == (["penstock"], ["worker", "a:b"])


def test_a_command_of_the_users_own_learns_the_same_from_its_environment():
    order = LaunchSpec(fleet="mail", app="a:b", queues=("mail", "bulk"), capacity=4, command=("run-it",))
    body = recipe(order, "mail-1", "shop:3", {}, ContainerDefaults())
    assert (body["Entrypoint"], body["Cmd"]) == (["run-it"], [])
    given = environment(order, "mail-1")
    assert given["PENSTOCK_WORKER_QUEUES"].split() == ["mail", "bulk"]
    assert given["PENSTOCK_WORKER_CAPACITY"] == "4"


def test_a_worker_has_its_name_and_all_the_time_it_needs_whatever_the_order_says():
    order = LaunchSpec(fleet="mail", app="a:b", environment={"PENSTOCK_WORKER_DRAIN_SECONDS": "30.0", "TZ": "UTC"})
    given = environment(order, "mail-1")
    assert given["PENSTOCK_MEMBER"] == "mail-1"
    assert float(given["PENSTOCK_WORKER_DRAIN_SECONDS"]) > 1_000_000
    assert given["TZ"] == "UTC"


@pytest.mark.parametrize(("given", "executors"), [({}, "2"), ({"PENSTOCK_WORKER_EXECUTORS": "0"}, "2")])
def test_a_worker_with_a_limit_of_cpus_starts_no_executor_for_every_core_of_the_machine(given, executors):
    order = LaunchSpec(fleet="mail", app="a:b", cpus=1.5, environment=given)
    assert environment(order, "mail-1")["PENSTOCK_WORKER_EXECUTORS"] == executors


def test_executors_that_the_user_has_chosen_stay():
    order = LaunchSpec(fleet="mail", app="a:b", cpus=1.5, environment={"PENSTOCK_WORKER_EXECUTORS": "7"})
    assert environment(order, "mail-1")["PENSTOCK_WORKER_EXECUTORS"] == "7"


def test_limits_are_given_in_the_units_of_the_engine_and_leave_no_room_for_swap():
    host = recipe(
        LaunchSpec(fleet="mail", app="a:b", cpus=0.5, memory_mib=64), "mail-1", "shop:3", {}, ContainerDefaults()
    )["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (500_000_000, 64 << 20, 64 << 20)


def test_what_is_not_asked_for_is_left_to_the_engine():
    host = recipe(LaunchSpec(fleet="mail", app="a:b"), "mail-1", "shop:3", {}, ContainerDefaults())["HostConfig"]
    assert not {"NanoCpus", "Memory", "MemorySwap", "NetworkMode"} & host.keys()


def test_labels_of_the_user_never_hide_those_by_which_containers_are_found():
    around = ContainerDefaults(labels={"team": "post", "penstock.fleet": "theirs"}, network="host", binds=("/a:/a:ro",))
    body = recipe(LaunchSpec(fleet="mail", app="a:b"), "mail-1", "shop:3", {"penstock.fleet": "mail"}, around)
    assert body["Labels"] == {"team": "post", "penstock.fleet": "mail"}
    assert (body["HostConfig"]["NetworkMode"], body["HostConfig"]["Binds"]) == ("host", ["/a:/a:ro"])


# -- the name


@pytest.mark.parametrize(
    "parting", [StopPlan(), StopPlan(StopStage.LEAVING), DRAINING, StopPlan(StopStage.DRAINING, NOW), hurried(NOW)]
)
def test_the_name_of_a_container_tells_how_far_it_is_on_its_way_out(parting):
    assert stop_plan_of(container_name("mail-00ff", parting)) == parting


def test_names_have_only_letters_that_engines_allow():
    assert container_name("shop:mail-00ff", StopPlan()) == "shop-mail-00ff"


@pytest.mark.parametrize("stage", [StopStage.LEAVING, StopStage.DRAINING])
def test_a_drain_can_be_made_shorter_and_never_longer(stage):
    short, long = StopPlan(stage, NOW + SECOND), StopPlan(stage, NOW + HOUR)
    assert long.sooner(NOW + SECOND) == short
    assert StopPlan(stage).sooner(NOW + HOUR) == long
    assert short.sooner(NOW + HOUR) == short
    assert long.sooner(None) == long
    assert hurried(NOW).sooner(NOW) == hurried(NOW)


def test_only_an_end_that_was_set_can_pass():
    assert StopPlan(StopStage.DRAINING, NOW).overdue(NOW)
    assert not StopPlan(StopStage.DRAINING, NOW + SECOND).overdue(NOW)
    assert not DRAINING.overdue(NOW + HOUR)
    assert not StopPlan().overdue(NOW + HOUR)


# -- the condition


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("created", Condition.STARTING),
        ("running", Condition.RUNNING),
        ("paused", Condition.RUNNING),
        ("of a later engine", Condition.RUNNING),
        ("removing", Condition.ENDING),
        ("exited", Condition.ENDED),
        ("stopped", Condition.ENDED),
        ("dead", Condition.ENDED),
    ],
)
def test_the_states_of_an_engine_are_conditions_of_a_member(state, expected):
    assert condition(seen(state), NOW) is expected


@pytest.mark.parametrize("state", ["created", "running"])
@pytest.mark.parametrize("stage", [StopStage.LEAVING, StopStage.DRAINING, StopStage.HURRIED])
def test_a_container_that_was_asked_to_stop_is_ending(state, stage):
    assert condition(seen(state, container_name("mail-1", StopPlan(stage))), NOW) is Condition.ENDING


def test_a_container_that_nobody_started_for_long_has_ended():
    forgotten = seen("created", created_at=NOW - HOUR)
    assert condition(forgotten, NOW) is Condition.ENDED
    told = ended(forgotten, ending(0))
    assert (told.exit_status, told.detail) == (None, "container 0123456789ab of shop:3 was created and never started")


# -- the end


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (ending(0), "exited with status 0"),
        (ending(3, said="no such module: shop"), "exited with status 3\nno such module: shop"),
        (ending(137), "was killed by SIGKILL"),
        (ending(137, memory_mib=64), "was killed by SIGKILL; perhaps above its limit of 64 MiB of memory"),
        (ending(143, memory_mib=64), "was killed by SIGTERM"),
        (ending(255), "exited with status 255"),
        (
            ending(137, out_of_memory=True, memory_mib=64),
            "was killed above its limit of 64 MiB of memory (status 137); give its fleet more memory_mib",
        ),
    ],
)
def test_the_end_of_a_container_is_told_with_its_last_words(how, words):
    told = ended(seen("exited"), how)
    assert told.detail == f"container 0123456789ab of shop:3 {words}"
    assert (told.name, told.condition, told.exit_status) == ("mail-1", Condition.ENDED, how.exit_status)
