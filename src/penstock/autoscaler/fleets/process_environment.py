"""What a worker process of this machine is told beside its order's environment."""

import math
import os
from typing import Final

from penstock.autoscaler.fleets.seam import MEMBER, LaunchSpec
from penstock.config import variable

LONGEST_DRAIN_SECONDS: Final = 31_536_000
"""For ever, to a worker: how long running jobs may take is decided here, not there."""

EXECUTORS: Final = variable("worker.executors")


def own_environment(order: LaunchSpec, name: str) -> dict[str, str]:
    """The settings that make a worker this member of this fleet."""
    settings: dict[str, object] = {"worker.drain_seconds": LONGEST_DRAIN_SECONDS}
    if order.queues is not None:
        settings["worker.queues"] = "".join(f"{queue}\n" for queue in order.queues)
    if order.capacity is not None:
        settings["worker.capacity"] = order.capacity
    if order.cpus is not None:
        settings["worker.executors"] = _executors(order)
    if order.memory_mib is not None:
        # Its limit is on one executor: each gets a share, and one more is left for the worker itself.
        settings["worker.memory_mib"] = max(1, order.memory_mib // (_executors(order) + 1))
    return {MEMBER: name, **{variable(setting): str(value) for setting, value in settings.items()}}


def _executors(order: LaunchSpec) -> int:
    if order.cpus is not None:
        return max(1, math.ceil(order.cpus))
    return int(order.environment.get(EXECUTORS, "0")) or len(os.sched_getaffinity(0))
