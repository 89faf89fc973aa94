"""What a worker's container is made of, in the words of the Docker API. Pure."""

import math
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from penstock.autoscaler.fleets.seam import MEMBER, LaunchSpec
from penstock.config import variable

DRAIN_SECONDS: Final = variable("worker.drain_seconds")
EXECUTORS: Final = variable("worker.executors")
QUEUES: Final = variable("worker.queues")
CAPACITY: Final = variable("worker.capacity")

AS_LONG_AS_IT_TAKES: Final = "31536000"
MIB: Final = 1024 * 1024


class ContainerDefaults(Struct, frozen=True, kw_only=True):
    """What holds for every container of an engine, whatever the fleet.

    `image` is for fleets that name none. `binds` are folders of the engine's machine (`/data:/data:ro`). `network` is
    one of the engine's, or `host`; None leaves it to the engine. `init` puts a small first process before the worker,
    which buries orphans and lets a worker be stopped before it has installed its signal handlers.
    """

    image: str | None = None
    binds: tuple[str, ...] = ()
    network: str | None = None
    labels: Mapping[str, str] = {}
    init: bool = True


def recipe(
    order: LaunchSpec, name: str, image: str, labels: Mapping[str, str], around: ContainerDefaults
) -> dict[str, Any]:
    """The body of the call that creates a worker's container.

    The command is the whole of what runs: it replaces the image's ENTRYPOINT, as it does in a pod.
    """
    program, *words = order.command or default_command(order)
    return {
        "Image": image,
        "Entrypoint": [program],
        "Cmd": words,
        "Env": [f"{key}={value}" for key, value in environment(order, name).items()],
        "Labels": {**around.labels, **labels},
        "HostConfig": {
            "Binds": list(around.binds),
            "Init": around.init,
            "RestartPolicy": {"Name": "no"},
            **({"NetworkMode": around.network} if around.network else {}),
            **_limits(order),
        },
    }


def default_command(order: LaunchSpec) -> tuple[str, ...]:
    """`penstock worker` for the fleet's app, queues and capacity."""
    queues = [word for queue in order.queues or () for word in ("--queue", queue)]
    capacity = [] if order.capacity is None else ["--capacity", str(order.capacity)]
    return ("penstock", "worker", order.app, *queues, *capacity)


def environment(order: LaunchSpec, name: str) -> dict[str, str]:
    """The order's own, what a command that is not ours must know too, and what the seam promises."""
    told = {QUEUES: "".join(f"{queue}\n" for queue in order.queues)} if order.queues is not None else {}
    if order.capacity is not None:
        told[CAPACITY] = str(order.capacity)
    if order.cpus is not None and order.environment.get(EXECUTORS, "0") == "0":
        # A worker counts the cores of the machine, and would start an executor for each.
        told[EXECUTORS] = str(math.ceil(order.cpus))
    # How long a drain may take is for whoever stops the member to say.
    return {**order.environment, **told, DRAIN_SECONDS: AS_LONG_AS_IT_TAKES, MEMBER: name}


def _limits(order: LaunchSpec) -> dict[str, int]:
    limits = {}
    if order.cpus is not None:
        limits["NanoCpus"] = round(order.cpus * 1_000_000_000)
    if order.memory_mib is not None:
        # The same with swap: none. A worker that swaps is worse than one that is killed and replaced.
        limits["Memory"] = limits["MemorySwap"] = order.memory_mib * MIB
    return limits
