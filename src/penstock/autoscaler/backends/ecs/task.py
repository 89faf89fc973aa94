"""What the tasks of a fleet are started as, and what ECS says about one. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from penstock.autoscaler.backends.launch import worker_settings
from penstock.autoscaler.backends.seam import Condition, FleetMember, LaunchSpec
from penstock.model.clock import EPOCH
from penstock.model.errors import FleetUnavailable

OVERRIDE_LETTERS: Final = 8192
"""Most characters of the overrides of one call, as JSON."""

UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
STARTED_BY_LETTERS: Final = 36

STARTING = frozenset({"PROVISIONING", "PENDING", "ACTIVATING"})
GOING = frozenset({"DEACTIVATING", "STOPPING", "DEPROVISIONING"})
OVER: Final = "STOPPED"


class TaskPlan(Struct, frozen=True, kw_only=True):
    """What the tasks of one fleet are, beyond its launch spec. `service`: alarms scale this service; None: we do.

    `capacity_providers` are names with an optional weight (`FARGATE_SPOT=3`); none means launch type FARGATE.
    """

    task_definition: str = ""
    container: str = "worker"
    service: str | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    public_ip: bool = False
    capacity_providers: tuple[str, ...] = ()


class TaskRow(Struct, frozen=True, kw_only=True):
    """A task as ECS describes it. `id` is the name of its worker, too; `reason` is why it stopped."""

    arn: str
    group: str
    definition: str
    created_at: datetime
    status: str
    wanted: str
    exit_status: int | None = None
    reason: str = ""

    @property
    def id(self) -> str:
        return self.arn.rpartition("/")[2]

    @property
    def ended(self) -> bool:
        return self.status == OVER


def run_request(spec: LaunchSpec, plan: TaskPlan, count: int, token: str, system: str) -> dict[str, Any]:
    """The arguments of a RunTask for `count` workers. FleetUnavailable if it cannot be made."""
    if not plan.task_definition:
        advice = "set ecs.task_definition, or task_definition in its table [tasks.…]"
        raise FleetUnavailable(f"fleet {spec.fleet} has no task definition to start tasks from: {advice}")
    overrides = _overrides(spec, plan.container)
    if len(json.dumps(overrides)) > OVERRIDE_LETTERS:
        raise FleetUnavailable(
            f"fleet {spec.fleet}: its environment and command have more than the {OVERRIDE_LETTERS:,} characters that "
            "ECS takes with a start; put what is the same for all workers into the task definition"
        )
    return {
        "taskDefinition": plan.task_definition,
        "count": count,
        "clientToken": token,
        "startedBy": started_by(system),
        "group": group_of(system, spec.fleet),
        "overrides": overrides,
        "propagateTags": "TASK_DEFINITION",
        **_place(plan),
    }


def started_by(system: str) -> str:
    """By what ECS lists the tasks of an installation."""
    return UNFIT.sub("-", system)[:STARTED_BY_LETTERS]


def group_of(system: str, fleet: str) -> str:
    return f"{system}/{fleet}"


def _place(plan: TaskPlan) -> dict[str, Any]:
    """Where tasks run, and their network."""
    placed: dict[str, Any] = {"launchType": "FARGATE"}
    if plan.capacity_providers:
        placed = {"capacityProviderStrategy": [_provider(text) for text in plan.capacity_providers]}
    if plan.subnets:
        network = {
            "subnets": list(plan.subnets),
            "securityGroups": list(plan.security_groups),
            "assignPublicIp": "ENABLED" if plan.public_ip else "DISABLED",
        }
        placed["networkConfiguration"] = {"awsvpcConfiguration": network}
    return placed


def _provider(text: str) -> dict[str, Any]:
    name, _, weight = text.partition("=")
    if weight and not weight.isdecimal():
        raise FleetUnavailable(f"{text!r} is no capacity provider; write its name, or NAME=WEIGHT: FARGATE_SPOT=3")
    return {"capacityProvider": name, "weight": int(weight or 1)}


def _overrides(spec: LaunchSpec, container: str) -> dict[str, Any]:
    environment = {**spec.environment, **worker_settings(spec)}
    limits = {}
    if spec.cpus is not None:
        limits["cpu"] = str(round(spec.cpus * 1024))
    if spec.memory_mib is not None:
        limits["memory"] = str(spec.memory_mib)
    told: dict[str, Any] = {
        "name": container,
        "environment": [{"name": name, "value": value} for name, value in sorted(environment.items())],
    }
    if spec.command is not None:
        # Else the task definition's own: ECS cannot replace an image's ENTRYPOINT, which may be `penstock` already.
        told["command"] = list(spec.command)
    return {"containerOverrides": [told], **limits}


def row_of(task: Mapping[str, Any]) -> TaskRow:
    """A task from an answer of ECS."""
    containers: Sequence[Mapping[str, Any]] = task.get("containers", ())
    # A start names the container of the worker; others beside it may end otherwise.
    ours = {one.get("name") for one in task.get("overrides", {}).get("containerOverrides", ())}
    own = [one for one in containers if one.get("name") in ours] or containers
    status = next((one["exitCode"] for one in own if one.get("exitCode") is not None), None)
    reasons = [task.get("stoppedReason"), *(one.get("reason") for one in containers)]
    return TaskRow(
        arn=task["taskArn"],
        group=task.get("group", ""),
        definition=str(task.get("taskDefinitionArn", "")).rpartition("/")[2],
        created_at=task.get("createdAt") or EPOCH,
        status=task.get("lastStatus", ""),
        wanted=task.get("desiredStatus", ""),
        exit_status=status,
        reason="; ".join(dict.fromkeys(str(reason) for reason in reasons if reason)),
    )


def condition(row: TaskRow, *, asked: bool) -> Condition:
    """The condition of a task. An unknown status counts as running, which is the safe assumption."""
    if row.ended:
        return Condition.ENDED
    if asked or row.status in GOING or row.wanted == OVER:
        return Condition.ENDING
    return Condition.STARTING if row.status in STARTING else Condition.RUNNING


def member_of(row: TaskRow, *, asked: bool = False) -> FleetMember:
    """The member of a fleet that is this task; an ended one with its exit status and why it stopped."""
    return FleetMember(
        name=row.id,
        condition=condition(row, asked=asked),
        started_at=row.created_at,
        exit_status=row.exit_status if row.ended else None,
        detail=f"task {row.id} of {row.definition}" + (f": {row.reason or 'it stopped'}" if row.ended else ""),
    )


def unstarted(fleet: str, number: int, reason: str, now: datetime) -> FleetMember:
    """A worker that ECS could not start, as one that has ended."""
    return FleetMember(
        name=f"{fleet}-unstarted-{number}",
        condition=Condition.ENDED,
        started_at=now,
        detail=f"ECS started no task: {reason}",
    )
