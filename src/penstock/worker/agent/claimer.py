"""Claims as many jobs as the worker has room for."""

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
"""How long a claim waits while types are declined: the set of wanted types may change soon."""
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


class BeforeJobs(Protocol):
    """Something to be done before the jobs of a claim start."""

    async def before_jobs(self) -> None: ...


class Declined:
    """Job types that this worker declines for a while because a job's params did not fit its handler. Pure.

    During a rolling deployment jobs may be for newer or older code. The span doubles with each misfit and starts anew
    once a job has fitted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spans: dict[str, float] = {}
        self._until: dict[str, float] = {}

    @property
    def any(self) -> bool:
        """Whether some type is declined now, or had a misfit and no fitting job since."""
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
        """The declined types, and for how many more seconds."""
        if not self._until:
            return {}
        now = self._clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return {name: until - now for name, until in self._until.items()}


class Claimer:
    """Claims jobs for the free capacity, never more: nothing is prefetched.

    Two claims may be pending: the second is for capacity that became free during the first, once it is at least
    `least`.
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
        protection: BeforeJobs | None = None,
    ) -> None:
        self._worker = worker
        self._protection = protection
        self._wanted = wanted
        self._api = api
        self._room = room
        self._terms = terms
        self._clock = clock
        self._declined = declined
        self._asked = 0
        self._answered = Wakeup()

    async def wait_until_idle(self) -> None:
        """Return when no claim is pending."""
        while self._asked:
            await self._answered.wait()

    async def step(self, least: int, backoff: Backoff) -> None:
        """Wait for free capacity, claim once, and start the claimed jobs."""
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
            try:
                if self._protection is not None:
                    await self._protection.before_jobs()
            finally:
                # Also when a drain cancels this claim: the jobs are given back then.
                self._room.take(claims, asked_at)
            # Let the event loop send the frames: these jobs should start before the next claim.
            await self._clock.sleep(ZERO)

    def _terms_now(self) -> tuple[WorkRequest, timedelta]:
        """What to claim and how long to wait. Of declined types only jobs that other workers gave back."""
        if not self._declined.any:
            return self._wanted, seconds(self._terms.claim_wait)
        left = self._declined.left()
        wait = min(self._terms.claim_wait, LOOK_AGAIN_SECONDS, *left.values())
        declined = self._wanted.types & left.keys()
        return replace(self._wanted, types=self._wanted.types - declined, only_given_back=declined), seconds(wait)
