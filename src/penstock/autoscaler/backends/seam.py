"""What every fleet backend promises. `penstock.testing.fleet_contract` holds each to it.

A backend starts, stops and lists workers as the machine sees them: processes, containers, pods, tasks. Which of them
are idle or busy it does not know; that is in the registry, under the same names. Members outlive whoever started them
where the backend can do that, and are found again by a later autoscaler.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from penstock.model.clock import Instant
from penstock.model.names import MEMBER

__all__ = ["MEMBER", "Condition", "FleetBackend", "FleetMember", "LaunchSpec"]


class Condition(StrEnum):
    """How a member is, as the machine sees it. `ended` ones are listed until they are collected."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


class FleetMember(Struct, frozen=True, kw_only=True):
    """One worker of a fleet. `name` is the id under which it joins; `detail` is for people: a pid, an image."""

    name: str
    condition: Condition
    started_at: Instant
    exit_status: int | None = None
    detail: str = ""


class LaunchSpec(Struct, frozen=True, kw_only=True):
    """What the workers of a fleet are started as. Backends take what they can use.

    `app` names the jobs (`module:app`); `queues` None means all that have no fleet of their own. `environment` holds
    what they need to reach the server or the store, and what the user added.
    """

    fleet: str
    app: str
    queues: tuple[str, ...] | None = None
    capacity: int | None = None
    image: str | None = None
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = {}
    cpus: float | None = None
    memory_mib: int | None = None


class FleetBackend(Protocol):
    """Where workers run. Every call may raise FleetUnavailable: nothing may then be assumed, look again."""

    async def start(self, order: LaunchSpec, count: int) -> list[str]:
        """Start so many workers; their names, which nobody else has or had. They need not be ready yet.

        What could not be started is left out, or listed as ended with the reason.
        """
        ...

    async def stop(self, fleet: str, names: Sequence[str], patience: timedelta | None = None) -> None:
        """Drain these members: they take no more jobs, finish those they have, and end. Returns at once.

        `patience` is how long they may take before they give their jobs back and end; None means as long as it takes.
        May be repeated, with less patience; a name that is not there is fine.
        """
        ...

    async def members(self, fleet: str) -> list[FleetMember]:
        """Every member by name, also those that another autoscaler started; ended ones are told of once.

        Where members cannot be seen from another process, only those of this one: see `elsewhere`.
        """
        ...

    def elsewhere(self, fleet: str, workers: Iterable[str]) -> list[str]:
        """Those of these workers that are members of the fleet and listed by another autoscaler's backend alone.

        None where `members` lists all.
        """
        ...

    async def stand_by(self) -> None:
        """Another autoscaler acts: drain, as long as it takes, the members that only this backend lists."""
        ...

    async def close(self) -> None:
        """Let go. Members go on where they can live without us; where they cannot, they are drained first."""
        ...
