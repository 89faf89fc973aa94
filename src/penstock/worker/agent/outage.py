"""Outages of the server, as a worker sees them: backoff between tries, and one log line per outage."""

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
"""The longest Retry-After that is respected: a proxy does not know how long leases last."""


class Outage:
    """Whether the server is unreachable. One per worker, so that its loops log an outage once."""

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
    """The delays between one loop's tries: doubling, jittered, at most LONGEST_SECONDS or what a Retry-After asks for.

    `longest_after` bounds the Retry-After, in seconds. Without an `outage` nothing is logged: the server is not at
    fault.
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
        """Record a success."""
        if self._tries:
            self._tries = 0
            if self._outage is not None:
                self._outage.ended()


async def concerns_all(error: Exception, ask_nothing: Callable[[], Awaitable[object]]) -> bool:
    """Whether a call failed for a reason outside its content: then sending its parts separately is of no use.

    `ask_nothing` makes the same call without content. If that succeeds, the content is the reason.
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
    """The seconds of the answer's Retry-After; 0 without one."""
    after = error.details.get("retry_after", 0)
    return float(after) if isinstance(after, int) else 0.0


FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0


class LoadRetries:
    """The imports of the app by executors. If the first one fails, the operator must fix the app.

    An app that was imported before and fails now is tried again with a growing delay; each error is logged once.
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
