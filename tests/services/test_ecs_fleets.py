"""Fleets of ECS tasks: what is asked of ECS and of the registry, on a cluster whose tasks are only rows."""

import random
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from penstock.autoscaler.backends import Condition, LaunchSpec
from penstock.autoscaler.backends.ecs import EcsFleets, TaskPlan
from penstock.autoscaler.backends.ecs.backend import APPEAR_WITHIN, HEAR_WITHIN
from penstock.autoscaler.backends.ecs.task import member_of, row_of, run_request
from penstock.aws import AwsService
from penstock.cli.doctor.backends import examine_fleets
from penstock.cli.doctor.findings import Finding, FindingStatus
from penstock.config import EcsSettings, FleetSettings, Settings
from penstock.model.errors import FleetUnavailable, StoreUnavailable
from penstock.testing.clock import SimulatedClock
from tests.ecs import EcsFront, ecs_client, point_to
from tests.emulators import ministack

SECOND = timedelta(seconds=1)
FLEET = "mail"
SPEC = LaunchSpec(fleet=FLEET, app="shop:app", queues=(FLEET,), environment={"COLOUR": "red"})
PLAN = TaskPlan(task_definition="work-{fleet}")
DEFINITION: dict[str, Any] = {"family": "work-mail", "containerDefinitions": [{"name": "worker", "image": "none"}]}


class Registry:
    """Keeps what was asked; `joined` are the workers that it knows."""

    def __init__(self) -> None:
        self.joined: set[str] = set()
        self.asked: list[tuple[str, timedelta | None]] = []
        self.down = False

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]:
        if self.down:
            raise StoreUnavailable("no shard answers")
        self.asked += [(name, patience) for name in names]
        return [name for name in names if name in self.joined]


class Ecs:
    """A front before the cluster, a client of its own, and backends as autoscalers have them."""

    def __init__(self, front: EcsFront, service: AwsService) -> None:
        self.front = front
        self.service = service
        self.registry = Registry()
        self.clock = SimulatedClock()
        self.cluster = f"c-{secrets.token_hex(4)}"
        self.opened: list[EcsFleets] = []

    def fleets(self, plan: TaskPlan = PLAN) -> EcsFleets:
        one = EcsFleets(
            self.registry, self.clock, random.Random(), cluster=self.cluster, plan=plan, look_every=timedelta(0)
        )
        self.opened.append(one)
        return one

    async def tasks(self) -> list[dict[str, Any]]:
        """Those that are to run."""
        arns = (await self.service.call("ListTasks", cluster=self.cluster))["taskArns"]
        described = (
            await self.service.call("DescribeTasks", cluster=self.cluster, tasks=arns) if arns else {"tasks": []}
        )
        return list(described["tasks"])


@pytest.fixture
async def ecs(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ecs]:
    server = ministack()
    async with AsyncExitStack() as undo:
        service = await undo.enter_async_context(ecs_client(monkeypatch, server))
        front = EcsFront(server.endpoint)
        point_to(monkeypatch, await undo.enter_async_context(front.serve()))
        await service.call("RegisterTaskDefinition", **DEFINITION)
        ecs = Ecs(front, service)
        await service.call("CreateCluster", clusterName=ecs.cluster)
        yield ecs
        for fleets in ecs.opened:
            await fleets.close()


async def test_tasks_are_started_ten_at_a_time_and_named_by_their_ids(ecs: Ecs) -> None:
    fleets = ecs.fleets()
    names = await fleets.start(SPEC, 23)
    assert ecs.front.calls.count("RunTask") == 3
    tasks = await ecs.tasks()
    assert sorted(names) == sorted(task["taskArn"].rpartition("/")[2] for task in tasks)
    assert {(task["startedBy"], task["group"]) for task in tasks} == {("penstock", "penstock/mail")}
    (told,) = {str(task["overrides"]["containerOverrides"]) for task in tasks}
    assert "'COLOUR', 'value': 'red'" in told
    assert "'PENSTOCK_WORKER_QUEUES', 'value': 'mail\\n'" in told
    assert "command" not in told
    assert [member.name for member in await ecs.fleets().members(FLEET)] == sorted(names)


async def test_a_hundred_and_more_tasks_are_all_seen(ecs: Ecs) -> None:
    names = await ecs.fleets().start(SPEC, 105)
    assert [member.name for member in await ecs.fleets().members(FLEET)] == sorted(names)


async def test_a_start_whose_answer_was_lost_starts_nothing_twice(ecs: Ecs) -> None:
    fleets = ecs.fleets()
    ecs.front.lose = 1
    names = await fleets.start(SPEC, 3)
    assert (len(names), len(await ecs.tasks())) == (3, 3)
    ecs.front.lose = 3
    with pytest.raises(FleetUnavailable, match="did not answer RunTask"):
        await fleets.start(SPEC, 2)
    assert len(await ecs.tasks()) == 5
    again = await fleets.start(SPEC, 2)
    assert len(await ecs.tasks()) == 5
    assert {member.name for member in await fleets.members(FLEET)} == {*names, *again}


async def test_a_lost_start_is_not_repeated_when_fewer_are_wanted_or_much_later(ecs: Ecs) -> None:
    fleets = ecs.fleets()
    ecs.front.lose = 3
    with pytest.raises(FleetUnavailable):
        await fleets.start(SPEC, 2)
    assert len(await fleets.start(SPEC, 1)) == 1
    assert len(await ecs.tasks()) == 3
    ecs.front.lose = 3
    with pytest.raises(FleetUnavailable):
        await fleets.start(SPEC, 2)
    ecs.clock.advance(APPEAR_WITHIN)
    await fleets.start(SPEC, 2)
    assert len(await ecs.tasks()) == 7


@pytest.mark.parametrize(
    ("patience", "stopped_after"), [(None, None), (SECOND * 60, SECOND * 60 + HEAR_WITHIN), (timedelta(0), HEAR_WITHIN)]
)
async def test_a_worker_that_has_joined_is_stopped_only_when_its_patience_is_over_and_it_had_time_to_hear(
    ecs: Ecs, patience: timedelta | None, stopped_after: timedelta | None
) -> None:
    fleets = ecs.fleets()
    (name,) = await fleets.start(SPEC, 1)
    ecs.registry.joined = {name}
    await fleets.stop(FLEET, [name], patience)
    assert ecs.registry.asked == [(name, patience)]
    (member,) = await fleets.members(FLEET)
    assert member.condition is Condition.ENDING
    ecs.clock.advance((stopped_after or timedelta(days=1)) - SECOND)
    await fleets.members(FLEET)
    assert "StopTask" not in ecs.front.calls
    ecs.clock.advance(SECOND)
    await fleets.members(FLEET)
    assert ecs.front.calls.count("StopTask") == (0 if patience is None else 1)
    if patience is not None:
        (end,) = await fleets.members(FLEET)
        assert (end.condition, "not drained" in end.detail) == (Condition.ENDED, True)
        assert await fleets.members(FLEET) == []
    assert ecs.front.calls.count("StopTask") <= 1
    assert ecs.registry.asked == [(name, patience)]


async def test_a_worker_that_has_not_joined_is_asked_again_until_it_has(ecs: Ecs) -> None:
    fleets = ecs.fleets()
    (name,) = await fleets.start(SPEC, 1)
    await fleets.stop(FLEET, [name])
    await fleets.stop(FLEET, [name], SECOND * 60)
    ecs.clock.advance(SECOND * 20)
    ecs.registry.down = True
    assert [member.name for member in await fleets.members(FLEET)] == [name]
    ecs.registry.down = False
    ecs.registry.joined = {name}
    await fleets.members(FLEET)
    await fleets.members(FLEET)
    assert ecs.registry.asked == [(name, None), (name, SECOND * 60), (name, SECOND * 40)]
    assert "StopTask" not in ecs.front.calls


async def test_a_task_that_never_joined_is_stopped_at_once_when_there_is_no_patience(ecs: Ecs) -> None:
    fleets = ecs.fleets()
    (name,) = await fleets.start(SPEC, 1)
    await fleets.stop(FLEET, [name], timedelta(0))
    assert ecs.front.calls.count("StopTask") == 1


async def test_what_ecs_could_not_start_is_told_as_ended_with_the_reason(ecs: Ecs) -> None:
    fleets = ecs.fleets()
    ecs.front.short_of = "RESOURCE:MEMORY"
    names = await fleets.start(SPEC, 3)
    assert len(names) == 2
    ended = [member for member in await fleets.members(FLEET) if member.condition is Condition.ENDED]
    assert [(end.exit_status, "RESOURCE:MEMORY" in end.detail) for end in ended] == [(None, True)]
    assert [member.name for member in await fleets.members(FLEET)] == sorted(names)
    with pytest.raises(FleetUnavailable, match="RESOURCE:MEMORY"):
        await fleets.start(SPEC, 1)


async def test_what_cannot_be_started_is_said_with_what_to_do(ecs: Ecs) -> None:
    with pytest.raises(FleetUnavailable, match=r"no task definition.*set ecs.task_definition"):
        await ecs.fleets(TaskPlan()).start(SPEC, 1)
    with pytest.raises(FleetUnavailable, match=r"Unable to find task definition.*correct ecs.task_definition"):
        await ecs.fleets(TaskPlan(task_definition="nothing")).start(SPEC, 1)
    large = LaunchSpec(fleet=FLEET, app="shop:app", environment={"LARGE": "x" * 8192})
    with pytest.raises(FleetUnavailable, match="8,192 characters"):
        await ecs.fleets().start(large, 1)


async def test_a_fleet_that_alarms_scale_is_only_watched(ecs: Ecs) -> None:
    service: dict[str, Any] = {"serviceName": "s-mail", "taskDefinition": "work-mail", "desiredCount": 2}
    await ecs.service.call("CreateService", cluster=ecs.cluster, **service)
    fleets = ecs.fleets(TaskPlan(service="s-{fleet}"))
    assert await fleets.external_count(FLEET) == 2
    members = await fleets.members(FLEET)
    assert len(members) == 2
    await fleets.stop(FLEET, [member.name for member in members], timedelta(0))
    assert len(await ecs.tasks()) == 2
    assert ecs.registry.asked == []
    with pytest.raises(FleetUnavailable, match="scaled by the alarms of service s-mail"):
        await fleets.start(SPEC, 1)
    with pytest.raises(FleetUnavailable, match="no service s-other"):
        await fleets.external_count("other")
    assert await ecs.fleets().external_count(FLEET) is None


async def test_the_doctor_looks_at_the_cluster(ecs: Ecs) -> None:
    async def examine(**fields: Any) -> Finding:
        (finding,) = await examine_fleets(Settings(fleet=FleetSettings(backend="ecs"), ecs=EcsSettings(**fields)))
        return finding

    await ecs.fleets().start(SPEC, 2)
    found = await examine(cluster=ecs.cluster, task_definition="work-mail")
    assert (found.status, found.found) == (
        FindingStatus.OK,
        f"cluster {ecs.cluster} is ACTIVE and has 2 tasks of workers",
    )
    assert (await examine(cluster=ecs.cluster)).status is FindingStatus.WARN
    missing = await examine(cluster="no-such", task_definition="work-mail")
    assert (missing.status, "no ECS cluster no-such" in missing.found) == (FindingStatus.FAIL, True)


def test_the_exit_status_is_that_of_the_workers_container() -> None:
    task = {
        "taskArn": "arn:task/c/1",
        "lastStatus": "STOPPED",
        "stoppedReason": "Essential container in task exited",
        "overrides": {"containerOverrides": [{"name": "worker"}]},
        "containers": [{"name": "logs", "exitCode": 143}, {"name": "worker", "exitCode": 2, "reason": "OutOfMemory"}],
    }
    told = member_of(row_of(task))
    assert (told.name, told.condition, told.exit_status) == ("1", Condition.ENDED, 2)
    assert told.detail.endswith("Essential container in task exited; OutOfMemory")


@pytest.mark.parametrize(
    ("plan", "check"),
    [
        (
            TaskPlan(task_definition="t"),
            lambda made: made["launchType"] == "FARGATE" and "networkConfiguration" not in made,
        ),
        (
            TaskPlan(task_definition="t", capacity_providers=("FARGATE_SPOT=3", "FARGATE")),
            lambda made: (
                made["capacityProviderStrategy"]
                == [{"capacityProvider": "FARGATE_SPOT", "weight": 3}, {"capacityProvider": "FARGATE", "weight": 1}]
                and "launchType" not in made
            ),
        ),
        (
            TaskPlan(task_definition="t", subnets=("s1",), security_groups=("g1",), public_ip=True),
            lambda made: (
                made["networkConfiguration"]["awsvpcConfiguration"]
                == {"subnets": ["s1"], "securityGroups": ["g1"], "assignPublicIp": "ENABLED"}
            ),
        ),
    ],
)
def test_where_tasks_run_is_as_the_settings_say(plan: TaskPlan, check: Callable[[dict[str, Any]], bool]) -> None:
    spec = LaunchSpec(fleet=FLEET, app="a:b", command=("x", "y"), cpus=0.5, memory_mib=1024)
    made = run_request(spec, plan, 4, "token", "penstock")
    assert check(made)
    assert (made["count"], made["clientToken"]) == (4, "token")
    assert (made["overrides"]["cpu"], made["overrides"]["memory"]) == ("512", "1024")
    assert made["overrides"]["containerOverrides"][0]["command"] == ["x", "y"]
