"""The engine: the moves over store, broker and objects. Every face of Penstock acts through it alone."""

import random
from collections.abc import Sequence
from functools import partial

from penstock.broker import Broker
from penstock.config import Settings
from penstock.engine.catalog import Catalog, Types
from penstock.engine.files import Files
from penstock.engine.fleets import Fleets
from penstock.engine.jobs import Jobs
from penstock.engine.keys import Keys
from penstock.engine.meters import Meters
from penstock.engine.queues import Queues
from penstock.engine.scheduler_api import Ticks
from penstock.engine.schedules import Schedules
from penstock.engine.shards import SdkPlacement, Shards
from penstock.engine.signals import Arrivals, JobWaiters, ScheduleSignals, Signal, Signals
from penstock.engine.submit import TicketPosting
from penstock.engine.window import Tickets
from penstock.engine.worker_api import EngineWorkerApi
from penstock.model.clock import Clock
from penstock.model.errors import ShuttingDown
from penstock.model.lifecycle import Event
from penstock.model.ports import SchedulerApi, WorkerApi
from penstock.objects import ObjectStore
from penstock.store import Store

__all__ = ["Engine", "SchedulerApi", "WorkerApi"]


class Engine:
    """A store, a broker and one object store, as one thing. Holds no truth of its own: any number may run."""

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
        self.job_waiters = JobWaiters(clock)
        self.catalog = Catalog(store, clock)
        self.keys = Keys(self.catalog, clock, required=settings.server.needs_keys)
        self.tickets = Tickets(broker, settings.timing, clock, shared=self.shared)
        self.files = Files(store, objects, settings, clock, rng)
        self.queues = Queues(store, self.catalog, self.tickets)
        self.posting = TicketPosting(self.catalog, self.tickets)
        self.fleets = Fleets(store, self.catalog, settings)
        self.changes = ScheduleSignals(rng)
        self.arrivals = Arrivals()
        self.signals = Signals(self)
        self.tickets.on_backlog = partial(self.signals.publish, Signal.BACKLOG)
        self.tickets.on_line_backlog = self.signals.publish_backlog
        self.changes.on_note = partial(self.signals.publish, Signal.SCHEDULES)
        self.catalog.on_tell = partial(self.signals.publish, Signal.NOTICES)
        self.arrivals.on_arrival = self.signals.publish_work
        self.ticks = Ticks(self)
        self.schedules = Schedules(self)
        self.jobs = Jobs(self, rng)
        self.worker_api = EngineWorkerApi(self, rng)
        self.shards = Shards(store)
        self.sdk_placement = SdkPlacement(store)
        self.types = Types(self)

    @property
    def shared(self) -> bool:
        """Whether other processes use the same broker."""
        return bool(self.settings.broker.url)

    def publish_events(self, events: Sequence[Event]) -> None:
        """Tell whoever waits, here and in other processes, what has become durable."""
        self.meters.heed(events)
        self.job_waiters.observe(events)
        self.tickets.observe(events)
        self.changes.observe(events)
        self.arrivals.observe(events)
        self.signals.publish_events(events)

    async def ready(self) -> None:
        """Return if jobs can be accepted now; raise Unavailable if not, and if this process is about to stop."""
        if self.leaving:
            raise ShuttingDown("this server is stopping: send requests to another")
        self.catalog.require_types()
        await self.store.probe()

    async def close(self) -> None:
        """Let go of the broker, the objects and the store, in this order."""
        self.changes.close()
        await self.tickets.close()
        await self.broker.close()
        await self.objects.close()
        await self.store.close()
