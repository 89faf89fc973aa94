"""What the engine's operations share. Imported by all of them; it imports none, so that no part needs the whole."""

import random

from msgspec import Struct

from penstock.config import Settings
from penstock.engine.catalog import Catalog
from penstock.engine.files import Files
from penstock.engine.meters import Meters
from penstock.engine.signals import Signals
from penstock.engine.window import Tickets
from penstock.model.clock import Clock
from penstock.store import Store


class EngineParts(Struct, frozen=True):
    """The leaves of one engine, made first; each operation takes from here what it uses."""

    store: Store
    clock: Clock
    settings: Settings
    rng: random.Random
    signals: Signals
    meters: Meters
    catalog: Catalog
    tickets: Tickets
    files: Files
