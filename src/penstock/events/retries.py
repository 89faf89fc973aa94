"""When an event that was not delivered is tried again: ten attempts over about three days. Pure."""

import random
from datetime import timedelta
from typing import Final

PAUSES: Final = (
    timedelta(0),
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""The pause before each attempt; the first is made at once."""
ATTEMPTS: Final = len(PAUSES)
LONGEST_WISH: Final = timedelta(days=1)
"""The longest pause that a sink may ask for by Retry-After."""
_SPREAD = 0.2


def pause_after(attempts: int, rng: random.Random, wish: timedelta | None = None) -> timedelta | None:
    """How long to wait after so many attempts; None once all are made.

    Jittered by a fifth, so that what failed together does not come back together. A longer pause that the sink asked
    for counts, up to a day.
    """
    return None if attempts >= ATTEMPTS else jittered(PAUSES[attempts], rng, wish)


def jittered(pause: timedelta, rng: random.Random, wish: timedelta | None = None) -> timedelta:
    """The pause, up to a fifth shorter or longer; never shorter than what the sink asked for."""
    spread = pause * rng.uniform(1 - _SPREAD, 1 + _SPREAD)
    return spread if wish is None else max(spread, min(wish, LONGEST_WISH))
