"""What workers in containers and pods are told: all that they connect with, and no secret where others can read it."""

from pathlib import Path

import pytest

from penstock.autoscaler.backends import LaunchSpec
from penstock.autoscaler.backends.ecs import TaskPlan
from penstock.backends.fleets import remote_fleets, task_plan
from penstock.backends.worker_environ import container_environ, pod_environ, task_environ
from penstock.config import EcsSettings, Settings, TaskTable, load
from penstock.model.clock import SystemClock
from penstock.model.errors import FleetUnavailable

SECRET = "hunter2"
GIVEN = {
    "PENSTOCK_STORE_URL": f"postgresql://jobs:{SECRET}@db/jobs",
    "PENSTOCK_BROKER_URL": f"redis://:{SECRET}@broker/0",
    "PENSTOCK_OBJECTS_URL": "s3://bucket/jobs",
    "PENSTOCK_WORKER_URL": "http://penstock-api",
    "PENSTOCK_WORKER_KEY": SECRET,
    "PENSTOCK_WORKER_GRACE_SECONDS": "7.5",
}
CREDENTIALS = {"PGPASSWORD": "p", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}


def settings(**more: str) -> Settings:
    return load(None, {**GIVEN, **more}, {})


def test_a_container_gets_the_credentials_that_its_urls_leave_out_and_nothing_else_of_the_autoscalers():
    told = container_environ(settings(), {**CREDENTIALS, "PATH": "/bin", "HOME": "/root", "OTHER_TOKEN": "x"})
    assert {name: value for name, value in told.items() if not name.startswith("PENSTOCK_")} == CREDENTIALS
    assert load(None, told, {}).store == settings().store
    assert load(None, told, {}).worker.direct


def test_which_variables_a_container_gets_can_be_chosen():
    told = container_environ(settings(PENSTOCK_FLEET_PASS_ENVIRONMENT="HTTPS_PROXY,PGPASSWORD"), {
        **CREDENTIALS, "HTTPS_PROXY": "http://proxy",
    })  # fmt: skip
    assert {name for name in told if not name.startswith("PENSTOCK_")} == {"HTTPS_PROXY", "PGPASSWORD"}


def test_a_variable_of_the_environment_never_hides_a_setting():
    chosen = settings(PENSTOCK_FLEET_PASS_ENVIRONMENT="PENSTOCK_STORE_URL")
    assert container_environ(chosen, {"PENSTOCK_STORE_URL": "other"})["PENSTOCK_STORE_URL"] == chosen.store.url


def test_a_container_is_told_nothing_that_only_holds_on_the_autoscalers_machine():
    told = container_environ(settings(PENSTOCK_WORKER_DEPLOYED_AT="2026-01-31T12:00:00Z"), {})
    assert not {"PENSTOCK_SERVER_DATA", "PENSTOCK_PARENT", "PENSTOCK_WORKER_DEPLOYED_AT"} & told.keys()


def test_a_pod_is_told_where_the_server_is_and_no_secret():
    told = pod_environ(settings())
    assert (told["PENSTOCK_WORKER_URL"], told["PENSTOCK_WORKER_GRACE_SECONDS"]) == ("http://penstock-api", "7.5")
    assert not [name for name, value in told.items() if SECRET in value]
    assert not {name for name in told if name.startswith(("PENSTOCK_STORE", "PENSTOCK_BROKER"))}
    assert "PENSTOCK_WORKER_KEY" not in told


def test_a_task_is_told_what_differs_from_the_defaults_and_no_secret():
    told = task_environ(settings())
    assert told == {
        "PENSTOCK_OBJECTS_URL": "s3://bucket/jobs",
        "PENSTOCK_WORKER_URL": "http://penstock-api",
        "PENSTOCK_WORKER_GRACE_SECONDS": "7.5",
    }


def test_the_tasks_of_a_fleet_are_as_its_table_says_and_else_as_all_are():
    ecs = EcsSettings(task_definition="all", subnets=("s",), public_ip=True)
    assert task_plan(ecs, TaskTable()) == TaskPlan(task_definition="all", subnets=("s",), public_ip=True)
    own = TaskTable(mode="alarms", subnets=(), public_ip=False)
    assert task_plan(ecs, own) == TaskPlan(task_definition="all", service="{fleet}")


@pytest.mark.parametrize(("image", "told"), [("shop", "no container engine answers"), ("", "set fleet.image")])
async def test_a_fleet_without_an_image_of_its_own_has_that_of_the_settings(
    image: str, told: str, tmp_path: Path
) -> None:
    engine = f"unix://{tmp_path}/none.sock"
    given = {"PENSTOCK_FLEET_BACKEND": "containers", "PENSTOCK_FLEET_ENGINE": engine, "PENSTOCK_FLEET_IMAGE": image}
    fleets = remote_fleets(settings(**given), SystemClock())
    with pytest.raises(FleetUnavailable, match=told):
        await fleets.start(LaunchSpec(fleet="thumbnail", app="shop.jobs:app"), 1)
    await fleets.close()
