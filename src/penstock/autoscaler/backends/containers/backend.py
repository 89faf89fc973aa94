"""The fleet backend for a container engine. All its state is in the engine: labels and names of containers."""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from penstock.autoscaler.backends.containers.container import (
    WORKER,
    ContainerDefaults,
    StopPlan,
    StopStage,
    alive,
    condition,
    container_name,
    ended,
    hurried,
    recipe,
    stop_plan_of,
    worker_of,
)
from penstock.autoscaler.backends.containers.engine import ContainerEngine, ContainerRow
from penstock.autoscaler.backends.seam import Condition, FleetMember, LaunchSpec
from penstock.model.clock import Clock, seconds
from penstock.model.errors import FleetUnavailable

logger = logging.getLogger("penstock.autoscaler")

SYSTEM: Final = "penstock.system"
FLEET: Final = "penstock.fleet"
MAX_CONCURRENT = 8
"""How many containers are started at a time."""

FLEET_LETTERS = 100

HEARS_AFTER = seconds(2.0)
"""A signal that arrives while the engine is still starting the first process of a container is lost."""


class ContainerFleets:
    """Workers in containers of the engine at `url`, found by their labels, whichever process started them.

    `system` separates installations that share an engine. Members outlive the autoscaler. The patience of stopped ones
    is checked whenever their fleet is listed; ended ones are removed once they were listed. A start waits while an
    image that the engine does not have is pulled.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        rng: random.Random,
        *,
        system: str = "penstock",
        around: ContainerDefaults | None = None,
    ) -> None:
        self._engine = ContainerEngine(url)
        self._clock = clock
        self._rng = rng
        self._system = system
        self._defaults = around or ContainerDefaults()
        self._listed: set[str] = set()
        self._since: dict[str, dict[str, float]] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._later: dict[str, asyncio.Task[None]] = {}

    async def start(self, spec: LaunchSpec, count: int) -> list[str]:
        image = spec.image or self._defaults.image
        if image is None:
            advice = "give it one with image, or set fleet.image"
            raise FleetUnavailable(f"fleet {spec.fleet} has no image to start containers from: {advice}")
        await self._have(image)
        gate = asyncio.Semaphore(MAX_CONCURRENT)
        async with asyncio.TaskGroup() as tasks:
            starts = [tasks.create_task(self._start_one(spec, image, gate)) for _ in range(count)]
        return self._started(spec.fleet, [start.result() for start in starts])

    async def stop(self, fleet: str, names: Sequence[str], patience: timedelta | None = None) -> None:
        wanted = set(names)
        async with self._turns[fleet]:
            for seen in await self._list_containers(fleet):
                if worker_of(seen) in wanted:
                    await self._stop_one(seen, patience)

    async def members(self, fleet: str) -> list[FleetMember]:
        async with self._turns[fleet]:
            found, now = await self._list_containers(fleet), self._clock.now()
            over = [seen for seen in found if condition(seen, now) is Condition.ENDED]
            alives = [seen for seen in found if seen not in over]
            for seen in alives:
                await self._follow_up(seen, now)
            ended = [await self._read_exit(seen) for seen in over if seen.id not in self._listed]
            await self._collect(over)
        members = [*(alive(seen, now) for seen in alives), *(member for member in ended if member)]
        return sorted(members, key=lambda member: member.name)

    def elsewhere(self, fleet: str, workers: Iterable[str]) -> list[str]:
        """None: the engine lists all members to every autoscaler."""
        return []

    async def external_count(self, fleet: str) -> None:
        """None: only autoscalers start and stop its workers."""

    async def stand_by(self) -> None:
        """Nothing to drain: the leading autoscaler sees all members."""

    async def close(self) -> None:
        for task in self._later.values():
            task.cancel()
        await asyncio.gather(*self._later.values(), return_exceptions=True)
        await self._engine.close()

    # -- starting

    async def _have(self, image: str) -> None:
        if await self._engine.has_image(image):
            return
        try:
            await self._engine.pull(image)
        except FleetUnavailable as error:
            advice = "build or pull it on the engine's machine, or correct the fleet's image"
            raise FleetUnavailable(f"image {image} is not there: {advice} ({error.message})") from None

    async def _start_one(self, spec: LaunchSpec, image: str, gate: asyncio.Semaphore) -> str | FleetUnavailable:
        name = f"{spec.fleet[:FLEET_LETTERS]}-{self._rng.getrandbits(64):016x}"
        labels = {**self._labels(spec.fleet), WORKER: name}
        try:
            async with gate:
                body = recipe(spec, name, image, labels, self._defaults)
                container = await self._engine.create(container_name(name, StopPlan()), body)
                await self._run(container)
                self._since.setdefault(spec.fleet, {})[container] = self._clock.monotonic()
        except FleetUnavailable as error:
            return error
        return name

    async def _run(self, container: str) -> None:
        """Start it, or leave nothing behind; one that started while the answer was lost is found by its labels."""
        try:
            await self._engine.start(container)
        except FleetUnavailable:
            with suppress(FleetUnavailable):
                await self._engine.remove(container)
            raise

    def _started(self, fleet: str, outcomes: Sequence[str | FleetUnavailable]) -> list[str]:
        """The names; the error if there are none."""
        names = [name for name in outcomes if isinstance(name, str)]
        faults = [fault for fault in outcomes if not isinstance(fault, str)]
        if faults and not names:
            raise faults[0]
        if faults:
            logger.warning("fleet %s: %d workers could not be started: %s", fleet, len(faults), faults[0])
        return names

    # -- looking

    async def _list_containers(self, fleet: str) -> list[ContainerRow]:
        found = [seen for seen in await self._engine.containers(self._labels(fleet)) if WORKER in seen.labels]
        before, now = self._since.get(fleet, {}), self._clock.monotonic()
        self._since[fleet] = {seen.id: before.get(seen.id, now) for seen in found if seen.state == "running"}
        return found

    def _labels(self, fleet: str) -> dict[str, str]:
        return {SYSTEM: self._system, FLEET: fleet}

    async def _read_exit(self, seen: ContainerRow) -> FleetMember | None:
        ending = await self._engine.inspect_exit(seen.id)
        return None if ending is None else ended(seen, ending)

    async def _collect(self, over: Sequence[ContainerRow]) -> None:
        """Remove listed ones. What cannot be removed now is not listed again, and removed later."""
        for seen in over:
            self._listed.add(seen.id)
            try:
                await self._engine.remove(seen.id)
                self._listed.discard(seen.id)
            except FleetUnavailable as error:
                logger.warning("%s", error)

    # -- stopping

    async def _stop_one(self, seen: ContainerRow, patience: timedelta | None) -> None:
        now, parting = self._clock.now(), stop_plan_of(seen.name)
        until = None if patience is None else now + patience
        match condition(seen, now):
            case Condition.ENDED:
                return
            case Condition.STARTING | Condition.RUNNING:
                await self._drain(seen, until)
            case Condition.ENDING:
                await self._mark(seen, parting.sooner(until))

    async def _follow_up(self, seen: ContainerRow, now: datetime) -> None:
        parting = stop_plan_of(seen.name)
        match parting.stage, parting.overdue(now):
            case StopStage.LEAVING, _:
                await self._drain(seen, parting.until)
            case StopStage.DRAINING, True:
                await self._urge(seen, hurried(now))
            case StopStage.HURRIED, False:
                # At every listing: a signal that arrives before the last one was handled is lost.
                await self._engine.signal(seen.id, "SIGTERM")
            case StopStage.HURRIED, True:
                await self._engine.signal(seen.id, "SIGKILL")

    async def _drain(self, seen: ContainerRow, until: datetime | None) -> None:
        """Ask it to drain: now, if its process has started, else a little later, at the next listing at the latest."""
        fleet, now = seen.labels[FLEET], self._clock.monotonic()
        if now - self._since[fleet].get(seen.id, now) >= HEARS_AFTER.total_seconds():
            await self._urge(seen, StopPlan(StopStage.DRAINING, until))
            return
        await self._mark(seen, StopPlan(StopStage.LEAVING, until))
        if fleet not in self._later or self._later[fleet].done():
            self._later[fleet] = asyncio.ensure_future(self._drain_later(fleet))

    async def _drain_later(self, fleet: str) -> None:
        """Repeat until every process could be signalled. A failure of the engine shows at the next listing too."""
        leaving = True
        while leaving:
            await self._clock.sleep(HEARS_AFTER)
            with suppress(FleetUnavailable):
                async with self._turns[fleet]:
                    found = [
                        seen
                        for seen in await self._list_containers(fleet)
                        if stop_plan_of(seen.name).stage is StopStage.LEAVING
                    ]
                    for seen in found:
                        await self._follow_up(seen, self._clock.now())
                leaving = bool(found)

    async def _urge(self, seen: ContainerRow, parting: StopPlan) -> None:
        # Signalled before it is marked: after a crash in between it is asked twice, rather than never.
        await self._engine.signal(seen.id, "SIGTERM")
        await self._mark(seen, parting)

    async def _mark(self, seen: ContainerRow, parting: StopPlan) -> None:
        if (name := container_name(worker_of(seen), parting)) != seen.name:
            await self._engine.rename(seen.id, name)
