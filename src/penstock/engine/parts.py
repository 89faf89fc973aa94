"""The parts that the engine's operations share, and the table of what signals cause in them.

Every operation imports this module, and it imports none of them: no operation needs the whole engine.
"""

import random

from msgspec import Struct

from penstock.broker import Broker
from penstock.config import Settings
from penstock.engine.catalog import Catalog
from penstock.engine.files import Files
from penstock.engine.meters import Meters
from penstock.engine.signals import JobWaiters, ScheduleVersion, Signals
from penstock.engine.window import Tickets
from penstock.model.clock import Clock, seconds
from penstock.objects import ObjectStore
from penstock.store import Store


class EngineParts(Struct, frozen=True):
    """Made once for an engine; each operation takes what it uses."""

    store: Store
    clock: Clock
    settings: Settings
    rng: random.Random
    signals: Signals
    meters: Meters
    catalog: Catalog
    tickets: Tickets
    files: Files
    job_waiters: JobWaiters
    schedule_version: ScheduleVersion


def make_parts(
    store: Store, broker: Broker, objects: ObjectStore, settings: Settings, clock: Clock, rng: random.Random
) -> EngineParts:
    """The parts of one engine, connected by their signals."""
    signals = Signals(broker, clock)
    catalog = Catalog(store, clock, signals, seconds(settings.timing.catalog_seconds))
    parts = EngineParts(
        store=store,
        clock=clock,
        settings=settings,
        rng=rng,
        signals=signals,
        meters=Meters(),
        catalog=catalog,
        tickets=Tickets(broker, catalog, signals, settings.timing, clock, shared=bool(settings.broker.url)),
        files=Files(store, objects, settings, clock, rng),
        job_waiters=JobWaiters(clock),
        schedule_version=ScheduleVersion(rng),
    )
    _subscribe(parts)
    return parts


def _subscribe(parts: EngineParts) -> None:
    """What events and signals cause in this process; the actions of one run in the order of these rows."""
    signals = parts.signals
    signals.events.subscribe(parts.meters.count_moves)
    signals.events.subscribe(parts.job_waiters.observe)
    signals.events.subscribe(parts.tickets.observe)
    signals.events.subscribe(parts.schedule_version.observe)
    signals.backlog.subscribe(lambda _: parts.tickets.wake.set())
    signals.window_full.subscribe(parts.tickets.receive_backlog)
    signals.notices.subscribe(lambda _: parts.catalog.forget())
    signals.notices.subscribe(lambda _: parts.tickets.pauses_changed())
    signals.schedules.subscribe(lambda _: parts.schedule_version.advance())
    signals.ended.subscribe(parts.job_waiters.wake)
    signals.ended.subscribe(parts.schedule_version.observe_ended)
