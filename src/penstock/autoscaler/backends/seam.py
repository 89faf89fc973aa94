"""What every fleet backend promises. `penstock.testing.fleet_contract` holds each to it.

A backend starts, stops and lists workers as the machine sees them: processes, containers, pods, tasks. Which of them
are idle or busy it does not know; that is in the registry, under the same names. Members outlive the autoscaler that
started them where the backend can do that, and are found again by a later one.
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
    """The state of a member, as the machine sees it. `ended` ones are listed until they are collected."""

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
    """Starts, stops and lists workers. Any call may raise FleetUnavailable: what was done is then unknown."""

    async def start(self, spec: LaunchSpec, count: int) -> list[str]:
        """Start `count` workers; their names, which are unique for all time. They need not be ready yet.

        What could not be started is left out, or listed as ended with the reason.
        """
        ...

    async def stop(self, fleet: str, names: Sequence[str], patience: timedelta | None = None) -> None:
        """Drain these members: they take no more jobs, finish those they have, and end. Returns at once.

        `patience` is how long they may take before they give their jobs back and end; None means as long as it takes.
        May be repeated, with less patience; an unknown name is no error.
        """
        ...

    async def members(self, fleet: str) -> list[FleetMember]:
        """Every member by name, also those that another autoscaler started; ended ones are listed once.

        Where members cannot be seen from another process, only those of this one: see `elsewhere`.
        """
        ...

    def elsewhere(self, fleet: str, workers: Iterable[str]) -> list[str]:
        """The workers among these that are members of the fleet but listed only by another autoscaler's backend.

        None where `members` lists all.
        """
        ...

    async def external_count(self, fleet: str) -> int | None:
        """How many workers something else wants the fleet to have, which alone starts and stops them.

        None: the autoscaler does.
        """
        ...

    async def stand_by(self) -> None:
        """Another autoscaler leads: drain, as long as it takes, the members that only this backend lists."""
        ...

    async def close(self) -> None:
        """Release resources. Members go on where they outlive this process; else they are drained first."""
        ...
