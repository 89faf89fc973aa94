"""Whether a shard is well: a breaker with hysteresis, decided purely and acted on thinly."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import Clock
from penstock.model.errors import MapChanged, StoreBusy, StoreUnavailable
from penstock.model.ids import ShardId

T = TypeVar("T")

logger = logging.getLogger("penstock.orchestrator")

FAILURES_TO_FALL = 2
PROBES_TO_RISE = 2
RETRY_AFTER_SECONDS = 1
CALL_DEADLINE = timedelta(seconds=5)


class ShardHealth(Struct, frozen=True):
    """How a shard is, since when, and how many steps it has taken towards being otherwise."""

    healthy: bool
    since: datetime
    steps: int = 0

    def note(self, ok: bool, now: datetime, *, probe: bool = False) -> "ShardHealth":
        """After one more answer, or none. Down, only probes count: nothing else should be asked then."""
        if not self.healthy and not probe:
            return self
        if ok is self.healthy:
            return replace(self, steps=0) if self.steps else self
        needed = FAILURES_TO_FALL if self.healthy else PROBES_TO_RISE
        if self.steps + 1 >= needed:
            return ShardHealth(not self.healthy, now)
        return replace(self, steps=self.steps + 1)


class ShardBreaker:
    """Lets calls through to a shard that is well, each for a limited time, and refuses the others at once.

    When the shard falls, the calls that still wait for it are refused too: nobody waits for a shard known to be down.
    """

    def __init__(self, shard: ShardId, clock: Clock, deadline: timedelta = CALL_DEADLINE, *, well: bool = True) -> None:
        self.shard = shard
        self.health = ShardHealth(well, clock.now())
        self.reason: str | None = None
        self.calls = 0
        self.failures = 0
        self._clock = clock
        self._deadline = deadline
        self._waiting: set[asyncio.Timeout] = set()

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the shard answers; StoreUnavailable, naming the shard, when it is down, fails or takes too long."""
        if not self.health.healthy:
            raise self.refusal(sent=False)
        self.calls += 1
        answer = await self._try(call, self._deadline, probe=False)
        if self.health.steps:
            self._note(ok=True, probe=False)
        return answer

    async def probe(self, call: Callable[[], Awaitable[T]], deadline: timedelta) -> T:
        """As `run`, but also while the shard is down: what comes back is what decides."""
        answer = await self._try(call, deadline, probe=True)
        self._note(ok=True, probe=True)
        return answer

    def record(self, *, ok: bool, reason: str | None = None) -> None:
        """Note what was seen elsewhere, as a probe."""
        self._note(ok=ok, probe=True, reason=reason)

    def refusal(self, *, sent: bool) -> StoreUnavailable:
        """`sent`: the shard may have been asked before it was known to be down."""
        since = f"{self.health.since:%Y-%m-%d %H:%M:%S}Z"
        return self._error(f"shard {self.shard} does not answer since {since}; retry in a moment", sent=sent)

    async def _try(self, call: Callable[[], Awaitable[T]], deadline: timedelta, *, probe: bool) -> T:
        try:
            return await self._run_limited(call, asyncio.timeout(deadline.total_seconds()), probe=probe)
        except TimeoutError:
            error = self._late(deadline)
            self._note(ok=False, probe=probe, reason=error.message)
            raise error from None
        except MapChanged:
            # An answer like any other: the caller goes by another map.
            raise
        except StoreBusy as error:
            # It says nothing about the shard's health: to refuse all calls would leave the same connections unused.
            raise StoreBusy(
                f"shard {self.shard}: {error.message}", shard=self.shard, retry_after=RETRY_AFTER_SECONDS
            ) from error
        except StoreUnavailable as error:
            self._note(ok=False, probe=probe, reason=error.message)
            raise self._error(f"shard {self.shard}: {error.message}", sent=not error.unsent) from error

    async def _run_limited(self, call: Callable[[], Awaitable[T]], limit: asyncio.Timeout, *, probe: bool) -> T:
        if not probe:
            self._waiting.add(limit)
        try:
            async with limit:
                return await call()
        finally:
            self._waiting.discard(limit)

    def _late(self, deadline: timedelta) -> StoreUnavailable:
        if not self.health.healthy:
            return self.refusal(sent=True)
        return self._error(
            f"shard {self.shard} did not answer within {deadline.total_seconds():g} s; retry in a moment", sent=True
        )

    def _error(self, message: str, *, sent: bool) -> StoreUnavailable:
        return StoreUnavailable(message, shard=self.shard, retry_after=RETRY_AFTER_SECONDS, sent=sent)

    def _note(self, *, ok: bool, probe: bool, reason: str | None = None) -> None:
        before, self.health = self.health, self.health.note(ok, self._clock.now(), probe=probe)
        self.failures += not ok
        if not ok and (probe or before.healthy):
            self.reason = reason
        if before.healthy and not self.health.healthy:
            logger.warning("shard %s does not answer: %s", self.shard, self.reason)
            self._release()
        elif self.health.healthy and not before.healthy:
            logger.warning("shard %s answers again", self.shard)
            self.reason = None

    def _release(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit in self._waiting:
            if not limit.expired():
                limit.reschedule(now)
