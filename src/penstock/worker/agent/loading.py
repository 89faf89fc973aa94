"""In the agent: whether the app can be imported, and when to try again if it cannot."""

import asyncio
import logging
import random

from penstock.model.errors import InvalidSetting
from penstock.model.timing import Clock
from penstock.worker.frames import Loaded

logger = logging.getLogger("penstock.worker")
LONGEST_RETRY_SECONDS = 30.0


class LoadRetries:
    """What executors tell about importing the app. An app that was never imported is the operator's to mend.

    One that was, and cannot be any more, is tried again later and later; each way it fails is told once.
    """

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._failures = 0
        self._told: str | None = None
        self._retry_at = float("-inf")
        self.first: asyncio.Future[Loaded] = asyncio.get_running_loop().create_future()

    @property
    def failing(self) -> bool:
        return self._failures > 0

    @property
    def resting(self) -> bool:
        """Whether it is too early to try again."""
        return self._clock.monotonic() < self._retry_at

    def succeeded(self, loaded: Loaded) -> None:
        self._failures, self._retry_at = 0, float("-inf")
        if not self.first.done():
            self.first.set_result(loaded)

    def failed(self, text: str) -> None:
        if self.resting:
            return
        self._failures += 1
        wait = min(LONGEST_RETRY_SECONDS, 2.0 ** min(self._failures - 1, 10))
        self._retry_at = self._clock.monotonic() + self._rng.uniform(wait / 2, wait)
        if not self.first.done():
            self.first.set_exception(InvalidSetting(text))
        elif text != self._told:
            logger.error("%s", text)
        self._told = text
