"""In the agent: asking for as many jobs as there is room for."""

import logging
from datetime import timedelta
from typing import Protocol

from msgspec.structs import replace

from penstock.model.clock import Clock, seconds
from penstock.model.errors import Refused, Unavailable
from penstock.model.job import Claim
from penstock.model.ports import WorkerApi
from penstock.model.workers import WorkRequest
from penstock.worker.agent.attempt import LeaseTerms, Wakeup
from penstock.worker.agent.outage import Backoff

logger = logging.getLogger("penstock.worker")
REFUSED = seconds(5.0)
LOOK_AGAIN_SECONDS = 0.5
"""How long a claim waits while some types are left to others: what it asks for may soon be another."""
ZERO = seconds(0.0)
FIRST_DECLINED_SECONDS = 1.0
LONGEST_DECLINED_SECONDS = 10.0


class Room(Protocol):
    """Where claimed jobs go."""

    def free(self) -> int:
        """How many more jobs could run now."""
        ...

    async def wait_for_change(self) -> None:
        """Return when there may be more room than before."""
        ...

    def take(self, claims: list[Claim], asked_at: float) -> None: ...


class Declined:
    """While a deployment rolls, jobs may be for newer or older code than this worker's. It then takes none of that type
    for a while: longer each time, from the start again once one has fitted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spans: dict[str, float] = {}
        self._until: dict[str, float] = {}

    @property
    def any(self) -> bool:
        """Whether there is a type of which a job did not fit, and none has since; or that is left to others still."""
        return bool(self._spans or self._until)

    def given_back(self, type_name: str) -> None:
        """A job of this type did not fit."""
        span = self._spans.get(type_name, FIRST_DECLINED_SECONDS)
        self._spans[type_name] = min(2 * span, LONGEST_DECLINED_SECONDS)
        self._until[type_name] = self._clock.monotonic() + span

    def ran(self, type_name: str) -> None:
        """A job of this type did fit."""
        self._spans.pop(type_name, None)

    def left(self) -> dict[str, float]:
        """The types that are left to others now, and for how many seconds more."""
        if not self._until:
            return {}
        now = self._clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return {name: until - now for name, until in self._until.items()}


class Claimer:
    """Keeps the engine asked for the room that is free, and for no more: nothing is fetched ahead.

    Two calls may be out: the second asks for room that came free while the first one waits or is answered, once
    `least` of it have gathered.
    """

    def __init__(
        self,
        worker: str,
        wanted: WorkRequest,
        api: WorkerApi,
        room: Room,
        terms: LeaseTerms,
        clock: Clock,
        declined: Declined,
    ) -> None:
        self._worker = worker
        self._wanted = wanted
        self._api = api
        self._room = room
        self._terms = terms
        self._clock = clock
        self._declined = declined
        self._asked = 0
        self._answered = Wakeup()

    async def wait_until_idle(self) -> None:
        """Return when no call is under way."""
        while self._asked:
            await self._answered.wait()

    async def step(self, least: int, backoff: Backoff) -> None:
        """Wait for room, ask once, and hand over what was given."""
        limit = await self._gather(least)
        self._asked += limit
        try:
            await self._claim(limit)
        except Unavailable as error:
            await backoff.wait(error)
        except Refused as error:
            logger.error("claiming was refused: %s", error)
            await self._clock.sleep(REFUSED)
        else:
            backoff.over()
        finally:
            self._asked -= limit
            self._answered.wake()

    async def _gather(self, least: int) -> int:
        while (limit := self._room.free() - self._asked) < least:
            await self._room.wait_for_change()
        return limit

    async def _claim(self, limit: int) -> None:
        asked_at = self._clock.monotonic()
        wanted, wait = self._terms_now()
        claims = await self._api.claim(self._worker, wanted, limit, wait)
        if claims:
            self._room.take(claims, asked_at)
            # One turn for the frames to go out: the jobs should start before more are asked for.
            await self._clock.sleep(ZERO)

    def _terms_now(self) -> tuple[WorkRequest, timedelta]:
        """What to ask for, of declined types only what others gave back, and how long to wait for it."""
        if not self._declined.any:
            return self._wanted, seconds(self._terms.claim_wait)
        left = self._declined.left()
        wait = min(self._terms.claim_wait, LOOK_AGAIN_SECONDS, *left.values())
        declined = self._wanted.types & left.keys()
        return replace(self._wanted, types=self._wanted.types - declined, only_given_back=declined), seconds(wait)
