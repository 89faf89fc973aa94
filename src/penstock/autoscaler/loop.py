"""The autoscaler: looks at the store, decides about each fleet, acts, and records. Of those of an app one acts."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from penstock.autoscaler.backends import FleetBackend
from penstock.autoscaler.controller import ControllerContext, FleetController
from penstock.autoscaler.own_fleets import OwnFleets
from penstock.autoscaler.snapshot import Snapshot, observe
from penstock.autoscaler.workers import FleetWorkers
from penstock.config import variable
from penstock.engine import Engine
from penstock.model.clock import Clock, seconds
from penstock.model.errors import FleetUnavailable, Unavailable
from penstock.model.fleet_plan import EffectiveFleet, Source
from penstock.model.fleet_readings import Unknown
from penstock.model.fleets import Fleet
from penstock.store import Store

logger = logging.getLogger("penstock.autoscaler")

HELD_FOR = timedelta(seconds=10)
RENEWED_AFTER = timedelta(seconds=3)

T = TypeVar("T")


def role_of(app: str) -> str:
    """The role that the autoscalers of an app share."""
    return f"autoscaler/{app}"


class Role:
    """`fence` grows each time the role passes to another holder; None while it is not held.

    `taken` says that another one holds it, as far as the store has said.
    """

    def __init__(self, store: Store, clock: Clock, holder: str, app: str) -> None:
        self.fence: int | None = None
        self.taken = False
        self._store = store
        self._clock = clock
        self._holder = holder
        self._name = role_of(app)
        self._led_at = float("-inf")

    @property
    def held(self) -> bool:
        """Whether it is still held, by the time that has passed since it was last asked for."""
        return self.fence is not None and self._left() > timedelta(0)

    async def lead(self) -> bool:
        """Be or become the one that holds it. Unavailable when the store cannot say."""
        if not self.held or HELD_FOR - self._left() > RENEWED_AFTER:
            await self._renew()
        return self.held

    async def resign(self) -> None:
        """Give it up, so that another may have it at once; it runs out by itself when the store does not answer."""
        if self.fence is None:
            return
        self.fence = None
        try:
            await self._store.release_role(self._name, self._holder)
        except Unavailable as error:
            logger.debug("the role of autoscaler runs out by itself: %s", error)

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do the work and renew the role beside it, however long it takes; None if the role was lost before its end.

        The work is cancelled then: what it has not begun to do is another's to decide.
        """
        working, keeping = asyncio.ensure_future(work), asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, keeping):
                task.cancel()
            await asyncio.wait({working, keeping})
        if not keeping.cancelled():
            keeping.result()
        return None if working.cancelled() else working.result()

    async def _keep(self) -> None:
        """Renew until the role is lost."""
        fence = self.fence
        while self.held and self.fence == fence:
            await self._clock.sleep(min(RENEWED_AFTER, self._left()))
            try:
                await self._renew()
            except Unavailable as error:
                logger.debug("the role of autoscaler is not renewed: %s", error)

    async def _renew(self) -> None:
        asked_at = self._clock.monotonic()
        fence = await self._store.acquire_role(self._name, self._holder, HELD_FOR)
        if fence != self.fence:
            logger.info("autoscaler %s %s", self._holder, "acts" if fence is not None else "stands by")
        self.fence, self.taken, self._led_at = fence, fence is None, asked_at

    def _left(self) -> timedelta:
        """For how long it is held, counted from before it was asked for."""
        since = seconds(min(1e6, self._clock.monotonic() - self._led_at))
        return max(timedelta(0), HELD_FOR - since)


LOOK_INTERVAL = timedelta(seconds=1)
RETRY_PAUSE = timedelta(seconds=1)
MIN_INTERVAL = timedelta(milliseconds=100)
"""The shortest time between two looks, however often work wakes us."""
APP_NAME = variable("worker.app")
LOOKAHEAD = timedelta(minutes=1)
"""How far ahead jobs that are due later are looked for, at least."""


class Autoscaler:
    """A service to be run with `step` and `wake`; `close` lets another one act at once.

    `holder` names this one among all autoscalers. `app` and `environment` are what every worker is started with; it
    acts for the job types of that app, which the registry knows as `app_name`, and for those of which no app is known.
    """

    def __init__(
        self,
        engine: Engine,
        backend: FleetBackend,
        *,
        holder: str,
        app: str,
        app_name: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = engine
        self._app = app_name or app
        told = {**(environment or {}), APP_NAME: self._app}
        self._around = ControllerContext(engine, backend, app, self._app, told, holder)
        self._role = Role(engine.store, engine.clock, holder, self._app)
        self._own = OwnFleets(engine.store, engine.clock, self._app)
        self._acted_under: int | None = None
        self._looked_at = float("-inf")
        self._tendings: dict[str, FleetController] = {}
        self._asleep: list[EffectiveFleet] = []
        self._out = False
        self.wake = asyncio.Event()
        self._end_listening = engine.arrivals.listen(self._heed)

    @property
    def acts(self) -> bool:
        """Whether this is the one that acts, as far as it knows."""
        return self._role.held

    async def step(self) -> timedelta:
        """One look at all fleets, if this is the one that acts; how long to wait for the next."""
        waited = self._engine.clock.monotonic() - self._looked_at
        if waited < MIN_INTERVAL.total_seconds():
            return seconds(MIN_INTERVAL.total_seconds() - waited)
        self._looked_at = self._engine.clock.monotonic()
        try:
            delay = await self._step()
        except Unavailable as error:
            logger.log(logging.DEBUG if self._out else logging.WARNING, "%s; fleets stay as they are", error)
            self._out = True
            return RETRY_PAUSE
        self._out = False
        return delay

    async def close(self) -> None:
        """Let another one act at once. The workers go on."""
        self._end_listening()
        await self._role.resign()

    async def _step(self) -> timedelta:
        delay = await self._role.run(self._observe()) if await self._role.lead() else None
        if delay is None and self._role.taken:
            await self._stand_by()
        return LOOK_INTERVAL if delay is None else delay

    async def _observe(self) -> timedelta:
        if self._acted_under != self._role.fence:
            # What was known is from before another one acted.
            self._acted_under = self._role.fence
            self._tendings.clear()
        standings = await self._read_fleets()
        sight = (await observe(self._engine, self._ahead())).for_app(self._app)
        delays = await asyncio.gather(*(self._step_fleet(standing, sight) for standing in standings.values()))
        self._asleep = [standing for name, standing in standings.items() if self._tendings[name].sleeps]
        await self._record(standings)
        return min((LOOK_INTERVAL, *delays))

    async def _stand_by(self) -> None:
        """Another one acts: let go of workers that it cannot see, or they would never be stopped."""
        self._asleep = []
        try:
            await self._around.backend.stand_by()
        except FleetUnavailable as error:
            logger.debug("workers are let go later: %s", error)

    # -- what there is

    async def _read_fleets(self) -> dict[str, EffectiveFleet]:
        """Every fleet of the app that there should be, and those that should not be any more but still have workers."""
        planned, records = await self._engine.fleets.plan(), await self._engine.fleets.records()
        own = await self._own.find(planned, (await self._engine.catalog.read()).types)
        retired = {
            name: _retired(name) for name in {*self._own.left_over(records, planned), *self._tendings} - set(own)
        }
        standings = {**own, **retired}
        for name in standings:
            if name not in self._tendings:
                self._tendings[name] = FleetController(name, self._around, records.get(name))
        return standings

    def _ahead(self) -> timedelta:
        startups = [tending.startup for tending in self._tendings.values()]
        return max(LOOKAHEAD, *(seconds(2 * one) for one in startups if not isinstance(one, Unknown)), LOOKAHEAD)

    async def _step_fleet(self, standing: EffectiveFleet, sight: Snapshot) -> timedelta:
        """What goes wrong with one fleet is no other's trouble."""
        try:
            return await self._tendings[standing.name].step(standing, sight, lambda: self._role.held)
        except Unavailable as error:
            logger.warning("fleet %s: %s; it stays as it is", standing.name, error)
        except Exception:
            logger.exception("fleet %s: a look failed; it stays as it is", standing.name)
        return LOOK_INTERVAL

    # -- being woken

    def _heed(self, queues: frozenset[str]) -> None:
        """Look at once where there was nobody; whoever has workers is looked at soon enough."""
        if "" in queues or any(standing.serves(queue) for standing in self._asleep for queue in queues):
            self.wake.set()

    # -- telling

    async def _record(self, standings: Mapping[str, EffectiveFleet]) -> None:
        now = self._engine.clock.now()
        due = {name: record for name in standings if (record := self._tendings[name].recording.due(now)) is not None}
        gone = [name for name, standing in standings.items() if _is_retired(standing) and self._is_empty(name)]
        try:
            await self._engine.fleets.record({name: record for name, record in due.items() if name not in gone})
            await self._engine.fleets.forget(gone)
        except Unavailable as error:
            logger.debug("what was decided is recorded later: %s", error)
            return
        for name, record in due.items():
            self._tendings[name].recording.written(record, now)
        for name in gone:
            del self._tendings[name]

    def _is_empty(self, name: str) -> bool:
        crew = self._tendings[name].crew
        return isinstance(crew, FleetWorkers) and not crew.hands


def _retired(name: str) -> EffectiveFleet:
    return EffectiveFleet(name=name, fleet=Fleet(), queues=(), source=Source.GONE)


def _is_retired(standing: EffectiveFleet) -> bool:
    return standing.source is Source.GONE
