"""Workers in containers of one engine that speaks the Docker API: Docker, or Podman's service."""

from penstock.autoscaler.fleets.containers.fleets import ContainerFleets
from penstock.autoscaler.fleets.containers.recipe import ContainerDefaults

__all__ = ["ContainerDefaults", "ContainerFleets"]
