"""The fleet backend that the settings name, and the environment of the workers that it starts elsewhere."""

import os
import random

import msgspec
from msgspec.structs import replace

from penstock.autoscaler.backends import FleetBackend
from penstock.autoscaler.backends.ecs import EcsFleets, TaskPlan
from penstock.backends.worker_environ import container_environ, pod_environ, task_environ
from penstock.config import EcsSettings, Settings, TaskTable
from penstock.engine import Engine
from penstock.model.clock import Clock


def fleet_extras(settings: Settings) -> list[str]:
    """The package extra that the fleet backend needs, if any."""
    backend = settings.fleet.backend
    return [] if backend == "processes" else ["aws" if backend == "ecs" else backend]


def fleet_backend(settings: Settings, engine: Engine) -> FleetBackend:
    """The fleet backend for containers, pods or tasks. It connects later."""
    return task_fleets(settings, engine) if settings.fleet.backend == "ecs" else remote_fleets(settings, engine.clock)


def remote_fleets(settings: Settings, clock: Clock) -> FleetBackend:
    """The fleet backend for containers or pods."""
    fleet = settings.fleet
    image = fleet.image or None
    if fleet.backend == "kubernetes":
        from penstock.autoscaler.backends.kubernetes import KubernetesFleets
        from penstock.autoscaler.backends.kubernetes import PodDefaults as OfPods

        pods = OfPods(image=image, secrets=fleet.secrets)
        return KubernetesFleets(clock, namespace=fleet.namespace or None, around=pods)
    from penstock.autoscaler.backends.containers import ContainerDefaults as OfContainers
    from penstock.autoscaler.backends.containers import ContainerFleets

    containers = OfContainers(image=image, binds=fleet.binds, network=fleet.network or None)
    return ContainerFleets(fleet.engine, clock, random.Random(), around=containers)


def task_fleets(settings: Settings, engine: Engine) -> FleetBackend:
    """The fleet backend for Amazon ECS."""
    ecs = settings.ecs
    plans = {name: task_plan(ecs, table) for name, table in settings.tasks.items()}
    return EcsFleets(
        engine.store, engine.clock, random.Random(), cluster=ecs.cluster, plan=task_plan(ecs, TaskTable()), plans=plans
    )


def task_plan(ecs: EcsSettings, table: TaskTable) -> TaskPlan:
    """What the tasks of a fleet are: as its table says, else as `[ecs]` does."""
    told = {name: value for name, value in msgspec.structs.asdict(table).items() if value is not None}
    chosen = replace(ecs, **told)
    return TaskPlan(
        task_definition=chosen.task_definition,
        container=chosen.container,
        service=chosen.service if chosen.mode == "alarms" else None,
        subnets=chosen.subnets,
        security_groups=chosen.security_groups,
        public_ip=chosen.public_ip,
        capacity_providers=chosen.capacity_providers,
    )


def fleet_environ(settings: Settings) -> dict[str, str]:
    """The environment of workers in containers, pods or tasks."""
    match settings.fleet.backend:
        case "kubernetes":
            return pod_environ(settings)
        case "ecs":
            return task_environ(settings)
        case _:
            return container_environ(settings, os.environ)
