"""What a worker's container is made of, in the words of the Docker API. Pure."""

import re
import signal
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from penstock.autoscaler.backends.containers.engine import ContainerExit, ContainerRow
from penstock.autoscaler.backends.launch import worker_settings
from penstock.autoscaler.backends.seam import MEMBER, Condition, FleetMember, LaunchSpec
from penstock.config import variable
from penstock.model.clock import from_millis, to_millis

DRAIN_SECONDS: Final = variable("worker.drain_seconds")

AS_LONG_AS_IT_TAKES: Final = "31536000"
MIB: Final = 1024 * 1024


class ContainerDefaults(Struct, frozen=True, kw_only=True):
    """What holds for every container of an engine, whatever the fleet.

    `image` is for fleets that name none. `binds` are folders of the engine's machine (`/data:/data:ro`). `network` is
    one of the engine's, or `host`; None leaves it to the engine. `init` puts a small first process before the worker,
    which reaps orphans and lets a worker be stopped before it has installed its signal handlers.
    """

    image: str | None = None
    binds: tuple[str, ...] = ()
    network: str | None = None
    labels: Mapping[str, str] = {}
    init: bool = True


def recipe(
    spec: LaunchSpec, name: str, image: str, labels: Mapping[str, str], around: ContainerDefaults
) -> dict[str, Any]:
    """The body of the call that creates a worker's container.

    The command is the whole of what runs: it replaces the image's ENTRYPOINT, as it does in a pod.
    """
    program, *words = spec.command or default_command(spec)
    return {
        "Image": image,
        "Entrypoint": [program],
        "Cmd": words,
        "Env": [f"{key}={value}" for key, value in environment(spec, name).items()],
        "Labels": {**around.labels, **labels},
        "HostConfig": {
            "Binds": list(around.binds),
            "Init": around.init,
            "RestartPolicy": {"Name": "no"},
            **({"NetworkMode": around.network} if around.network else {}),
            **_limits(spec),
        },
    }


def default_command(spec: LaunchSpec) -> tuple[str, ...]:
    """`penstock worker` for the fleet's app, queues and capacity."""
    queues = [word for queue in spec.queues or () for word in ("--queue", queue)]
    capacity = [] if spec.capacity is None else ["--capacity", str(spec.capacity)]
    return ("penstock", "worker", spec.app, *queues, *capacity)


def environment(spec: LaunchSpec, name: str) -> dict[str, str]:
    """The environment of a container: the spec's, and the settings of the worker, also for a user's own command."""
    # How long a drain may take is decided by the caller of `stop`.
    return {**spec.environment, **worker_settings(spec), DRAIN_SECONDS: AS_LONG_AS_IT_TAKES, MEMBER: name}


def _limits(spec: LaunchSpec) -> dict[str, int]:
    limits = {}
    if spec.cpus is not None:
        limits["NanoCpus"] = round(spec.cpus * 1_000_000_000)
    if spec.memory_mib is not None:
        # The same with swap: none. A worker that swaps is worse than one that is killed and replaced.
        limits["Memory"] = limits["MemorySwap"] = spec.memory_mib * MIB
    return limits


UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
MARKED = re.compile(r"\.(?P<stage>leaving|draining|hurried)(?:-(?P<until>\d+))?$")

AFTER_HURRY = timedelta(seconds=60)
"""How long a worker that was told to hurry may take to give its jobs back, before it is killed."""


class StopStage(StrEnum):
    """`leaving`: still to be asked to drain. `hurried`: asked a second time."""

    WORKING = "working"
    LEAVING = "leaving"
    DRAINING = "draining"
    HURRIED = "hurried"


class StopPlan(Struct, frozen=True):
    """A stage and when it is over; None: as long as it takes."""

    stage: StopStage = StopStage.WORKING
    until: datetime | None = None

    def sooner(self, until: datetime | None) -> "StopPlan":
        """The plan when the end is asked for by this time: never later than before."""
        if self.stage is StopStage.HURRIED or until is None:
            return self
        return StopPlan(self.stage, until if self.until is None else min(until, self.until))

    def overdue(self, now: datetime) -> bool:
        return self.stage is not StopStage.WORKING and self.until is not None and self.until <= now


def hurried(now: datetime) -> StopPlan:
    return StopPlan(StopStage.HURRIED, now + AFTER_HURRY)


def container_name(worker: str, parting: StopPlan) -> str:
    """What the container of this worker is called in this stage; engines allow fewer letters than we do."""
    stem = UNFIT.sub("-", worker)
    if parting.stage is StopStage.WORKING:
        return stem
    return f"{stem}.{parting.stage}" + ("" if parting.until is None else f"-{to_millis(parting.until)}")


def stop_plan_of(name: str) -> StopPlan:
    """What the name of a container says."""
    mark = MARKED.search(name)
    if mark is None:
        return StopPlan()
    return StopPlan(StopStage(mark["stage"]), None if mark["until"] is None else from_millis(int(mark["until"])))


WORKER: Final = "penstock.worker"
START_WITHIN = timedelta(minutes=5)
"""A container that was created and not started for so long was abandoned by its starter."""

NOT_YET = frozenset({"created", "configured", "initialized"})
OVER = frozenset({"exited", "stopped", "dead"})
GOING = frozenset({"removing", "stopping"})
SIGNALS = frozenset(signal.valid_signals())
BY_SIGNAL = 128
"""Added to the number of the signal that ended a container, that is its exit status."""

BYTES_PER_MIB = 1024 * 1024


def condition(seen: ContainerRow, now: datetime) -> Condition:
    """The condition of a container. An unknown state counts as running, which is the safe assumption."""
    if seen.state in OVER or (seen.state in NOT_YET and now - seen.created_at > START_WITHIN):
        return Condition.ENDED
    if seen.state in GOING or stop_plan_of(seen.name).stage is not StopStage.WORKING:
        return Condition.ENDING
    return Condition.STARTING if seen.state in NOT_YET else Condition.RUNNING


def alive(seen: ContainerRow, now: datetime) -> FleetMember:
    """A member that has not ended."""
    return FleetMember(
        name=worker_of(seen),
        condition=condition(seen, now),
        started_at=seen.created_at,
        detail=f"container {seen.id[:12]} of {seen.image}" + (", paused" if seen.state == "paused" else ""),
    )


def ended(seen: ContainerRow, ending: ContainerExit) -> FleetMember:
    """A member that has ended, with the end of its output."""
    never = seen.state in NOT_YET
    parts = ["was created and never started" if never else _how(ending), ending.fault, ending.last_lines]
    return FleetMember(
        name=worker_of(seen),
        condition=Condition.ENDED,
        started_at=seen.created_at,
        exit_status=None if never else ending.exit_status,
        detail=f"container {seen.id[:12]} of {seen.image} " + "\n".join(part for part in parts if part),
    )


def worker_of(seen: ContainerRow) -> str:
    return seen.labels[WORKER]


def _how(ending: ContainerExit) -> str:
    limit = f"its limit of {ending.memory_bytes // BYTES_PER_MIB} MiB of memory"
    if ending.out_of_memory:
        return f"was killed above {limit} (status {ending.exit_status}); give its fleet more memory_mib"
    number = ending.exit_status - BY_SIGNAL
    if number not in SIGNALS:
        return f"exited with status {ending.exit_status}"
    # Not every engine tells why.
    suspicion = f"; perhaps above {limit}" if number == signal.SIGKILL and ending.memory_bytes else ""
    return f"was killed by {signal.Signals(number).name}{suspicion}"
