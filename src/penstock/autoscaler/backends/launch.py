"""The settings of a worker that follow from its launch spec, as variables: the same in containers, pods and tasks."""

import math
from typing import Final

from penstock.autoscaler.backends.seam import LaunchSpec
from penstock.config import variable

EXECUTORS: Final = variable("worker.executors")
QUEUES: Final = variable("worker.queues")
CAPACITY: Final = variable("worker.capacity")


def worker_settings(spec: LaunchSpec) -> dict[str, str]:
    """Queues, capacity and executors, also for a user's own command."""
    settings = {QUEUES: "".join(f"{queue}\n" for queue in spec.queues)} if spec.queues is not None else {}
    if spec.capacity is not None:
        settings[CAPACITY] = str(spec.capacity)
    if spec.cpus is not None and spec.environment.get(EXECUTORS, "0") == "0":
        # A worker counts the cores of the machine, and would start an executor for each.
        settings[EXECUTORS] = str(math.ceil(spec.cpus))
    return settings
