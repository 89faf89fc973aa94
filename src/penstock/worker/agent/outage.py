"""While the engine cannot be reached: wait longer and longer, and say so once."""

import logging
import random

from penstock.model.errors import Unavailable
from penstock.model.timing import Clock, seconds

LOGGER = logging.getLogger("penstock.worker")
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 2.0


class Outage:
    """One per worker, so that its loops speak with one voice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    @property
    def on(self) -> bool:
        return self._since is not None

    def began(self, error: Unavailable) -> None:
        if self._since is None:
            self._since = self._clock.monotonic()
            LOGGER.warning("the server cannot be reached (%s); trying again until it can", error)

    def ended(self) -> None:
        if self._since is not None:
            LOGGER.info("the server is back after %.1f s", self._clock.monotonic() - self._since)
            self._since = None


class Backoff:
    """One loop's waits between tries: doubling, jittered, never longer than LONGEST_SECONDS."""

    def __init__(self, outage: Outage, clock: Clock, chance: random.Random) -> None:
        self._outage = outage
        self._clock = clock
        self._chance = chance
        self._tries = 0

    async def wait(self, error: Unavailable) -> None:
        self._outage.began(error)
        longest = min(LONGEST_SECONDS, FIRST_SECONDS * 2**self._tries)
        self._tries = min(self._tries + 1, 10)
        await self._clock.sleep(seconds(self._chance.uniform(longest / 2, longest)))

    def over(self) -> None:
        """The try succeeded."""
        if self._tries:
            self._tries = 0
            self._outage.ended()
