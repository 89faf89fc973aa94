"""Workers as processes of this machine, below the process that scales them. What `penstock up` uses."""

import asyncio
import random
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from penstock.autoscaler.fleets.process import Launch, WorkerProcess
from penstock.autoscaler.fleets.process_environment import own_environment
from penstock.autoscaler.fleets.seam import Condition, FleetMember, LaunchSpec
from penstock.model.errors import FleetUnavailable
from penstock.model.timing import Clock, seconds

NAME_BITS: Final = 48
NAME_END: Final = "-[0-9a-f]{12}"
LONGEST_STEM: Final = 100
"""A name has at most 128 letters."""
GIVE_BACK_AT_ONCE: Final = seconds(0)


class ProcessFleets:
    """Keeps Fleets. Members cannot live without this process: they drain when it ends, however it does.

    `launch` starts one; `patience` is how long running jobs may take when all this is closed.
    """

    def __init__(self, launch: Launch, clock: Clock, rng: random.Random, *, patience: timedelta) -> None:
        self._launch = launch
        self._clock = clock
        self._rng = rng
        self._patience = patience
        self._fleets: dict[str, dict[str, WorkerProcess]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def start(self, order: LaunchSpec, count: int) -> list[str]:
        if self._closing:
            raise FleetUnavailable("no more workers are started: this process is stopping")
        return [self._start(order) for _ in range(count)]

    async def stop(self, fleet: str, names: Sequence[str], patience: timedelta | None = None) -> None:
        here = self._fleets.get(fleet, {})
        for name in names:
            if name in here:
                here[name].drain(patience)

    async def members(self, fleet: str) -> list[FleetMember]:
        here = self._fleets.get(fleet, {})
        members = [one.describe() for one in here.values()]
        for member in members:
            if member.condition is Condition.ENDED:
                del here[member.name]
        return sorted(members, key=lambda member: member.name)

    def elsewhere(self, fleet: str, workers: Iterable[str]) -> list[str]:
        """Known by their names: one made here or in another process that scales the same fleet."""
        here, made = self._fleets.get(fleet, {}), re.compile(re.escape(_stem(fleet)) + NAME_END)
        return [name for name in workers if name not in here and made.fullmatch(name)]

    async def stand_by(self) -> None:
        self._drain_all(None)

    def hurry(self) -> None:
        """Give all running jobs back, now; all members end."""
        self._drain_all(GIVE_BACK_AT_ONCE)

    async def close(self) -> None:
        """Drain all members and wait until they have ended."""
        self._closing = True
        self._drain_all(self._patience)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _drain_all(self, patience: timedelta | None) -> None:
        for here in self._fleets.values():
            for one in here.values():
                one.drain(patience)

    def _start(self, order: LaunchSpec) -> str:
        here = self._fleets.setdefault(order.fleet, {})
        name = f"{_stem(order.fleet)}-{self._rng.getrandbits(NAME_BITS):012x}"
        here[name] = process = WorkerProcess(name, self._clock)
        launched = self._launch(order.app, order.environment, own_environment(order, name))
        task = asyncio.ensure_future(process.run(launched))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return name


def _stem(fleet: str) -> str:
    return fleet[:LONGEST_STEM]
