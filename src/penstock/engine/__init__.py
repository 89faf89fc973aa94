"""The engine: the moves over store, broker and objects. Every face of Penstock acts through it alone."""

import random
from collections.abc import Sequence

from penstock.broker import Broker
from penstock.config import Settings
from penstock.engine.catalog import Catalog
from penstock.engine.changes import Changes
from penstock.engine.files import Files
from penstock.engine.jobs import Jobs
from penstock.engine.posting import Posting
from penstock.engine.queues import Queues
from penstock.engine.reach import Reach
from penstock.engine.schedules import Schedules
from penstock.engine.tickets import Tickets
from penstock.engine.ticks import Ticks
from penstock.engine.timekeeper import Timekeeper
from penstock.engine.watch import Watch
from penstock.engine.work import Work
from penstock.model.lifecycle import Event
from penstock.model.timing import Clock
from penstock.objects import ObjectStore
from penstock.store import Shard

__all__ = ["Engine", "Reach", "Timekeeper"]


class Engine:
    """One shard, one broker and one object store, as one thing. Holds no truth of its own: any number may run."""

    def __init__(
        self,
        store: Shard,
        broker: Broker,
        objects: ObjectStore,
        settings: Settings,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self.store = store
        self.broker = broker
        self.objects = objects
        self.settings = settings
        self.clock = clock
        self.watch = Watch(clock)
        self.catalog = Catalog(store, clock)
        self.tickets = Tickets(broker, settings.timing)
        self.files = Files(store, objects, settings.limits, clock, chance)
        self.queues = Queues(store, self.catalog, self.tickets)
        self.posting = Posting(self.catalog, self.tickets)
        self.changes = Changes(chance)
        self.ticks = Ticks(self)
        self.schedules = Schedules(self)
        self.jobs = Jobs(self, chance)
        self.work = Work(self, chance)

    def moved(self, events: Sequence[Event]) -> None:
        """Tell whoever waits in this process what has become durable."""
        self.watch.notify(events)
        self.tickets.heed(events)
        self.changes.heed(events)

    async def ready(self) -> None:
        """Return if jobs can be accepted now; raise Unavailable if not."""
        await self.store.probe()

    async def close(self) -> None:
        """Let go of the broker, the objects and the store, in this order."""
        self.changes.close()
        await self.broker.close()
        await self.objects.close()
        await self.store.close()
