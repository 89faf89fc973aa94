"""The fleet backend that the settings name, and the environment of the workers that it starts elsewhere."""

import os
import random

from penstock.autoscaler.backends import FleetBackend
from penstock.backends.worker_environ import container_environ, pod_environ
from penstock.config import Settings
from penstock.model.clock import Clock


def fleet_extras(settings: Settings) -> list[str]:
    """The package extra that the fleet backend needs, if any."""
    return [] if settings.fleet.backend == "processes" else [settings.fleet.backend]


def remote_fleets(settings: Settings, clock: Clock) -> FleetBackend:
    """The fleet backend for containers or pods. It connects later."""
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


def fleet_environ(settings: Settings) -> dict[str, str]:
    """The environment of workers in containers or pods."""
    return pod_environ(settings) if settings.fleet.backend == "kubernetes" else container_environ(settings, os.environ)
