"""While the engine cannot be reached: wait longer and longer, and say so once."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from penstock.backoff import backoff_seconds
from penstock.model.clock import Clock, seconds
from penstock.model.errors import InvalidSetting, PenstockError, ServerUnavailable, Unauthorized, Unavailable
from penstock.worker.protocol import Loaded

logger = logging.getLogger("penstock.worker")
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 2.0
LONGEST_AFTER_SECONDS = 5.0
"""The most that a Retry-After is heeded: a proxy does not know how long leases last."""


class Outage:
    """One per worker, so that its loops speak with one voice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    @property
    def on(self) -> bool:
        return self._since is not None

    def began(self, error: PenstockError) -> None:
        if self._since is None:
            self._since = self._clock.monotonic()
            logger.warning("the server cannot be reached (%s); trying again until it can", error)

    def ended(self) -> None:
        if self._since is not None:
            logger.info("the server is back after %.1f s", self._clock.monotonic() - self._since)
            self._since = None


class Backoff:
    """One loop's waits between tries: doubling, jittered, no longer than LONGEST_SECONDS unless it was asked to wait.

    `longest_after` is how many seconds it waits at most when a Retry-After asks it to. Without an `outage` it says
    nothing: the trouble is not the server's.
    """

    def __init__(
        self, outage: Outage | None, clock: Clock, rng: random.Random, longest_after: float = LONGEST_AFTER_SECONDS
    ) -> None:
        self._outage = outage
        self._clock = clock
        self._rng = rng
        self._longest_after = longest_after
        self._tries = 0

    async def wait(self, error: PenstockError) -> None:
        if self._outage is not None:
            self._outage.began(error)
        own = backoff_seconds(self._tries, FIRST_SECONDS, LONGEST_SECONDS, self._rng)
        self._tries += 1
        await self._clock.sleep(seconds(max(own, min(_asked(error), self._longest_after))))

    def over(self) -> None:
        """The try succeeded."""
        if self._tries:
            self._tries = 0
            if self._outage is not None:
                self._outage.ended()


async def concerns_all(error: Exception, ask_nothing: Callable[[], Awaitable[object]]) -> bool:
    """Whether a call failed for a reason that lies outside of what it carried: then telling parts of it is of no use.

    `ask_nothing` is the same call with nothing in it. A server that answers that one cannot take this one.
    """
    match error:
        case ServerUnavailable():
            try:
                await ask_nothing()
            except PenstockError:
                return True
            return False
        case Unavailable() | Unauthorized():
            return True
        case _:
            return False


def _asked(error: PenstockError) -> float:
    """The seconds that the answer asked to wait; 0 if it did not."""
    after = error.details.get("retry_after", 0)
    return float(after) if isinstance(after, int) else 0.0


FIRST_RETRY_SECONDS = 1.0
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
        wait = backoff_seconds(self._failures, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, self._rng)
        self._failures += 1
        self._retry_at = self._clock.monotonic() + wait
        if not self.first.done():
            self.first.set_exception(InvalidSetting(text))
        elif text != self._told:
            logger.error("%s", text)
        self._told = text
