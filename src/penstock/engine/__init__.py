"""The engine: every operation over store, broker and objects. API, SDK, workers and services act through it alone."""

import random

from penstock.broker import Broker
from penstock.config import Settings
from penstock.engine.deliveries import Deliveries
from penstock.engine.fleets import Fleets
from penstock.engine.history import Histories
from penstock.engine.job_types import Types
from penstock.engine.jobs import Jobs
from penstock.engine.keys import Keys
from penstock.engine.parts import make_parts
from penstock.engine.queues import Queues
from penstock.engine.repeats import RepeatedSubmits
from penstock.engine.scheduler_api import Ticks
from penstock.engine.schedules import Schedules
from penstock.engine.shards import SdkPlacement, Shards
from penstock.engine.signals import Actions
from penstock.engine.subscriptions import Subscriptions
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
        self.departure = Actions[None]()
        """What happens when this process is asked to stop."""
        parts = make_parts(store, broker, objects, settings, clock, rng)
        self.meters = parts.meters
        self.signals = parts.signals
        self.catalog = parts.catalog
        self.tickets = parts.tickets
        self.files = parts.files
        self.schedule_version = parts.schedule_version
        self.keys = Keys(parts.catalog, clock, required=settings.server.needs_keys)
        self.queues = Queues(store, parts.catalog, parts.tickets)
        self.types = Types(parts, self.queues)
        self.fleets = Fleets(store, parts.catalog, settings)
        self.history = Histories(parts)
        self.subscriptions = Subscriptions(parts)
        self.deliveries = Deliveries(parts, self.subscriptions)
        self.ticks = Ticks(parts)
        self.schedules = Schedules(parts, self.ticks)
        self.jobs = Jobs(parts, RepeatedSubmits(parts, self.schedules, self.ticks))
        self.worker_api = EngineWorkerApi(parts, self.schedules)
        self.shards = Shards(store)
        self.sdk_placement = SdkPlacement(store)

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

    def leave(self) -> None:
        """Be about to stop: not ready any more, and streams end."""
        self.leaving = True
        self.departure.run(None)

    async def flush(self) -> None:
        """Wait until the tickets and signals of what was done are sent: the process may stop after it."""
        await self.tickets.flush()
        await self.signals.flush()

    async def close(self) -> None:
        """Close the connections to sinks, the broker, the object store and the store, in this order."""
        await self.subscriptions.close()
        self.schedule_version.close()
        await self.tickets.close()
        await self.broker.close()
        await self.objects.close()
        await self.store.close()
