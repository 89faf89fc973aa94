"""The autoscaler: observes the store, decides about each fleet, acts, and records. One per app leads and acts."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta

from msgspec.structs import replace

from penstock.autoscaler.backends import FleetBackend
from penstock.autoscaler.controller import ControllerContext, FleetController
from penstock.autoscaler.snapshot import Snapshot, observe
from penstock.autoscaler.workers import FleetWorkers
from penstock.config import variable
from penstock.engine import Engine
from penstock.engine.leader import Leadership
from penstock.model.clock import Clock, seconds
from penstock.model.declarations import DeclaredType
from penstock.model.errors import FleetUnavailable, Unavailable
from penstock.model.fleet_plan import EffectiveFleet, Source
from penstock.model.fleet_readings import Unknown
from penstock.model.fleets import Fleet
from penstock.model.wire.fleets import FleetRecord
from penstock.store import Store

logger = logging.getLogger("penstock.autoscaler")

RETRY_PAUSE = timedelta(seconds=1)
MIN_INTERVAL = timedelta(milliseconds=100)
"""The shortest time between two observations, however often arriving jobs wake the loop."""
APP_NAME = variable("worker.app")
LOOKAHEAD = timedelta(minutes=1)
"""How far ahead jobs that are due later are counted, at least."""
NAME_KEPT_FOR = timedelta(hours=1)
"""How long a fleet name stays with its app while no autoscaler of the app runs: its workers may still run."""
NAME_RENEWED_AFTER = timedelta(minutes=1)


def role_of(app: str) -> str:
    """The role that the autoscalers of an app share."""
    return f"autoscaler/{app}"


class Autoscaler:
    """A service to be run with `step` and `wake`; `close` lets another autoscaler lead at once.

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
        self._interval = seconds(engine.settings.timing.observe_seconds)
        self._app = app_name or app
        passed = {**(environment or {}), APP_NAME: self._app}
        self._context = ControllerContext(engine, backend, app, self._app, passed, holder)
        self._leadership = Leadership(engine.store, engine.clock, holder, role_of(self._app))
        self._own = OwnFleets(engine.store, engine.clock, self._app)
        self._controllers_fence: int | None = None
        self._observed_at = float("-inf")
        self._controllers: dict[str, FleetController] = {}
        self._asleep: list[EffectiveFleet] = []
        self._out = False
        self.wake = asyncio.Event()
        self._end_listening = engine.signals.work.subscribe(self._wake_for)

    @property
    def acts(self) -> bool:
        """Whether this autoscaler leads, as far as it knows."""
        return self._leadership.held

    async def step(self) -> timedelta:
        """Observe all fleets and act, if this autoscaler leads; how long to wait until the next step."""
        waited = self._engine.clock.monotonic() - self._observed_at
        if waited < MIN_INTERVAL.total_seconds():
            return seconds(MIN_INTERVAL.total_seconds() - waited)
        self._observed_at = self._engine.clock.monotonic()
        try:
            await self._step()
        except Unavailable as error:
            logger.log(logging.DEBUG if self._out else logging.WARNING, "%s; fleets stay as they are", error)
            self._out = True
            return RETRY_PAUSE
        self._out = False
        return self._interval

    async def close(self) -> None:
        """Let another autoscaler lead at once. The workers go on."""
        self._end_listening()
        await self._leadership.resign()

    async def _step(self) -> None:
        if await self._leadership.acquire():
            await self._leadership.run(self._step_fleets())
        if self._leadership.taken:
            await self._stand_by()

    async def _step_fleets(self) -> None:
        if self._controllers_fence != self._leadership.fence:
            # Another autoscaler may have led since: what the controllers know is out of date.
            self._controllers_fence = self._leadership.fence
            self._controllers.clear()
        fleets = await self._read_fleets()
        snapshot = (await observe(self._engine, self._ahead())).for_app(self._app)
        await asyncio.gather(*(self._step_fleet(effective, snapshot) for effective in fleets.values()))
        self._asleep = [effective for name, effective in fleets.items() if self._controllers[name].sleeps]
        await self._record(fleets)

    async def _stand_by(self) -> None:
        """Another autoscaler leads: drain workers that it cannot see, or they would never be stopped."""
        self._asleep = []
        try:
            await self._context.backend.stand_by()
        except FleetUnavailable as error:
            logger.debug("workers are let go later: %s", error)

    async def _read_fleets(self) -> dict[str, EffectiveFleet]:
        """Every planned fleet of the app, and those that are planned no more but still have workers."""
        planned, records = await self._engine.fleets.plan(), await self._engine.fleets.records()
        own = await self._own.find(planned, (await self._engine.catalog.read()).types)
        retired = {
            name: _retired(name) for name in {*self._own.recorded(records, planned), *self._controllers} - set(own)
        }
        fleets = {**own, **retired}
        for name in fleets:
            if name not in self._controllers:
                self._controllers[name] = FleetController(name, self._context, records.get(name))
        return fleets

    def _ahead(self) -> timedelta:
        startups = [controller.startup for controller in self._controllers.values()]
        return max(LOOKAHEAD, *(seconds(2 * one) for one in startups if not isinstance(one, Unknown)), LOOKAHEAD)

    async def _step_fleet(self, effective: EffectiveFleet, snapshot: Snapshot) -> None:
        """A failure of one fleet does not keep the others from their step."""
        try:
            await self._controllers[effective.name].step(effective, snapshot, lambda: self._leadership.held)
        except Unavailable as error:
            logger.warning("fleet %s: %s; it stays as it is", effective.name, error)
        except Exception:
            logger.exception("fleet %s: a look failed; it stays as it is", effective.name)

    def _wake_for(self, queues: frozenset[str]) -> None:
        """Wake the loop if a fleet without workers serves one of the queues; the others are observed soon enough."""
        if "" in queues or any(effective.serves(queue) for effective in self._asleep for queue in queues):
            self.wake.set()

    async def _record(self, fleets: Mapping[str, EffectiveFleet]) -> None:
        now = self._engine.clock.now()
        due = {name: record for name in fleets if (record := self._controllers[name].recording.due(now)) is not None}
        gone = [name for name, effective in fleets.items() if _is_retired(effective) and self._is_empty(name)]
        try:
            await self._engine.fleets.record({name: record for name, record in due.items() if name not in gone})
            await self._engine.fleets.forget(gone)
        except Unavailable as error:
            logger.debug("what was decided is recorded later: %s", error)
            return
        for name, record in due.items():
            self._controllers[name].recording.mark_written(record, now)
        for name in gone:
            del self._controllers[name]

    def _is_empty(self, name: str) -> bool:
        found = self._controllers[name].workers
        return isinstance(found, FleetWorkers) and not found.workers


def _retired(name: str) -> EffectiveFleet:
    return EffectiveFleet(name=name, fleet=Fleet(), queues=(), source=Source.GONE)


def _is_retired(effective: EffectiveFleet) -> bool:
    return effective.source is Source.GONE


class OwnFleets:
    """The planned fleets that an app's autoscaler acts for: those that serve job types of the app.

    Several apps may share a queue, or the default fleet. Then each has workers of its own for it: the first app has the
    fleet of that name, another one a copy whose name ends with the app.
    """

    def __init__(self, store: Store, clock: Clock, app: str) -> None:
        self._store = store
        self._clock = clock
        self._app = app
        self._names: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}

    async def find(
        self, planned: Mapping[str, EffectiveFleet], types: Mapping[str, DeclaredType]
    ) -> dict[str, EffectiveFleet]:
        """By name, the fleets that serve a type of the app, or only types of which no app is known, or no type."""
        found: dict[str, EffectiveFleet] = {}
        for effective in planned.values():
            if effective.copy_of is None and _is_own(effective, types.values(), self._app):
                name = await self._find_name(effective.name)
                found[name] = planned.get(name) or replace(effective, name=name, copy_of=effective.name)
        return found

    def recorded(self, records: Mapping[str, FleetRecord], planned: Mapping[str, EffectiveFleet]) -> set[str]:
        """The names of fleets recorded for this app. Those that `find` does not return are to be retired."""
        return {
            name
            for name, record in records.items()
            if record.app == self._app or (record.app is None and name not in planned)
        }

    async def _find_name(self, planned: str) -> str:
        now = self._clock.monotonic()
        if now - self._asked_at.get(planned, float("-inf")) >= NAME_RENEWED_AFTER.total_seconds():
            fence = await self._store.acquire_role(f"fleet/{planned}", self._app, NAME_KEPT_FOR)
            # The workers carry the name: it does not change while this process lives.
            self._names.setdefault(planned, planned if fence is not None else copy_name(planned, self._app))
            self._asked_at[planned] = now
        return self._names[planned]


def copy_name(planned: str, app: str) -> str:
    """The name of an app's own copy of a fleet, in letters that are safe in a name."""
    letters = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "." for letter in app)
    return f"{planned}.{letters}"[:100]


def _is_own(effective: EffectiveFleet, types: Iterable[DeclaredType], app: str) -> bool:
    served = [one.apps for one in types if effective.serves(one.queue)]
    return any(app in apps for apps in served) or not any(served)
