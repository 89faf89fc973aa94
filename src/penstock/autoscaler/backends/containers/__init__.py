"""Workers in containers of one engine that speaks the Docker API: Docker, or Podman's service."""

from penstock.autoscaler.backends.containers.backend import ContainerFleets
from penstock.autoscaler.backends.containers.container import ContainerDefaults

__all__ = ["ContainerDefaults", "ContainerFleets"]
