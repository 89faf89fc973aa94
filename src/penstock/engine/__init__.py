"""The engine: every operation over store, broker and objects. API, SDK, workers and services act through it alone."""

import random

from penstock.broker import Broker
from penstock.config import Settings
from penstock.engine.catalog import Catalog
from penstock.engine.files import Files
from penstock.engine.fleets import Fleets
from penstock.engine.job_types import Types
from penstock.engine.jobs import Jobs
from penstock.engine.keys import Keys
from penstock.engine.meters import Meters
from penstock.engine.parts import EngineParts
from penstock.engine.queues import Queues
from penstock.engine.repeats import RepeatedSubmits
from penstock.engine.scheduler_api import Ticks
from penstock.engine.schedules import Schedules
from penstock.engine.shards import SdkPlacement, Shards
from penstock.engine.signals import JobWaiters, ScheduleVersion, Signals
from penstock.engine.window import Tickets
from penstock.engine.worker_api import EngineWorkerApi
from penstock.model.clock import Clock
from penstock.model.errors import ShuttingDown
from penstock.model.ports import SchedulerApi, WorkerApi
from penstock.objects import ObjectStore
from penstock.store import Store

__all__ = ["Engine", "SchedulerApi", "WorkerApi"]


class Engine:
    """The operations over one store, one broker and one object store. Stateless: any number may run."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        objects: ObjectStore,
        settings: Settings,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.store = store
        self.broker = broker
        self.objects = objects
        self.settings = settings
        self.clock = clock
        self.leaving = False
        self.meters = Meters()
        self.signals = Signals(broker, clock)
        self.catalog = Catalog(store, clock, self.signals)
        self.tickets = Tickets(broker, self.catalog, self.signals, settings.timing, clock, shared=self.shared)
        self.files = Files(store, objects, settings, clock, rng)
        self.job_waiters = JobWaiters(clock)
        self.schedule_version = ScheduleVersion(rng)
        parts = EngineParts(
            store, clock, settings, rng, self.signals, self.meters, self.catalog, self.tickets, self.files
        )
        self.keys = Keys(self.catalog, clock, required=settings.server.needs_keys)
        self.queues = Queues(store, self.catalog, self.tickets)
        self.types = Types(parts, self.queues)
        self.fleets = Fleets(store, self.catalog, settings)
        self.ticks = Ticks(parts, self.schedule_version)
        self.schedules = Schedules(parts, self.ticks)
        self.jobs = Jobs(parts, RepeatedSubmits(parts, self.schedules, self.ticks), self.job_waiters)
        self.worker_api = EngineWorkerApi(parts, self.schedules)
        self.shards = Shards(store)
        self.sdk_placement = SdkPlacement(store)
        self._subscribe()

    def _subscribe(self) -> None:
        """What events and signals cause in this process; the actions of one run in the order of these rows."""
        events, signals = self.signals.events, self.signals
        events.subscribe(self.meters.count_moves)
        events.subscribe(self.job_waiters.observe)
        events.subscribe(self.tickets.observe)
        events.subscribe(self.schedule_version.observe)
        signals.backlog.subscribe(lambda _: self.tickets.wake.set())
        signals.window_full.subscribe(self.tickets.receive_backlog)
        signals.notices.subscribe(lambda _: self.catalog.forget())
        signals.notices.subscribe(lambda _: self.tickets.pauses_changed())
        signals.schedules.subscribe(lambda _: self.schedule_version.advance())
        signals.ended.subscribe(self.job_waiters.wake)
        signals.ended.subscribe(self.schedule_version.observe_ended)

    @property
    def shared(self) -> bool:
        """Whether other processes use the same broker."""
        return bool(self.settings.broker.url)

    async def ready(self) -> None:
        """Return if jobs can be accepted now; raise Unavailable if not, and if this process is about to stop."""
        if self.leaving:
            raise ShuttingDown("this server is stopping: send requests to another")
        self.catalog.require_types()
        await self.store.probe()

    async def close(self) -> None:
        """Close the broker, the object store and the store, in this order."""
        self.schedule_version.close()
        await self.tickets.close()
        await self.broker.close()
        await self.objects.close()
        await self.store.close()
