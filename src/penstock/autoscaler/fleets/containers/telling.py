"""Containers as members of a fleet: their condition, and how they ended in words. Pure."""

import signal
from datetime import datetime, timedelta
from typing import Final

from penstock.autoscaler.fleets.containers.engine import ContainerExit, ContainerRow
from penstock.autoscaler.fleets.containers.parting import StopStage, stop_plan_of
from penstock.autoscaler.fleets.seam import Condition, FleetMember

WORKER: Final = "penstock.worker"
START_WITHIN = timedelta(minutes=5)
"""A container that was created and not started for so long has lost whoever wanted to start it."""

NOT_YET = frozenset({"created", "configured", "initialized"})
OVER = frozenset({"exited", "stopped", "dead"})
GOING = frozenset({"removing", "stopping"})
SIGNALS = frozenset(signal.valid_signals())
BY_SIGNAL = 128
"""Added to the number of the signal that ended a container, that is its exit status."""

BYTES_PER_MIB = 1024 * 1024


def condition(seen: ContainerRow, now: datetime) -> Condition:
    """A state that we do not know counts as running: nothing is taken for dead that may live."""
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
    """A member that has, with its last words."""
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
