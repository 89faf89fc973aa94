"""In the agent: what the engine did not take together with others, told one by one."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from penstock.model.clock import Clock
from penstock.model.errors import Invalid, Malformed, PenstockError, StoreUnavailable, TooLarge
from penstock.model.job import Lease
from penstock.model.ports import WorkerApi
from penstock.model.text import readable
from penstock.model.wire.jobs import Outcome, Refusal
from penstock.worker.agent.attempt import Attempt, LeaseTerms, Release, simplify
from penstock.worker.agent.outage import Backoff, concerns_all


class PendingOutcome(Struct, eq=False):
    """How an attempt ended. Not told before `ready_at`, nor until `log_until` before its log; monotonic seconds.

    `failing_since` is when the engine first failed to take it by itself, and `simplified` whether it has been replaced
    by a plain error since.
    """

    attempt: Attempt
    telling: Outcome | Release
    ready_at: float = 0.0
    log_until: float = 0.0
    told: bool = False
    failing_since: float | None = None
    simplified: bool = False


def calls_of(pending: Sequence[PendingOutcome]) -> list[list[PendingOutcome]]:
    """Those that go in one call together, outcomes first."""
    outcomes = [one for one in pending if type(one.telling) is Outcome]
    if len(outcomes) == len(pending):
        return [outcomes] if outcomes else []
    innocent = [one for one in pending if one.telling == Release()]
    suspects = [one for one in pending if one.telling == Release(suspect=True)]
    return [group for group in (outcomes, innocent, suspects) if group]


async def tell_engine(reach: WorkerApi, group: Sequence[PendingOutcome]) -> list[Refusal]:
    """Tell what goes in one call; what was refused of it."""
    telling = group[0].telling
    if isinstance(telling, Release):
        return await reach.release([one.attempt.lease for one in group], suspects=telling.suspect)
    return await reach.settle([one.telling for one in group if isinstance(one.telling, Outcome)])


def unsure_of(group: Sequence[PendingOutcome], refused: Sequence[Refusal]) -> list[PendingOutcome]:
    """Those that the engine is to be told again: their shard gave no answer."""
    unsure = {Lease(one.job, one.fence) for one in refused if one.unsure}
    return [one for one in group if one.attempt.lease in unsure] if unsure else []


logger = logging.getLogger("penstock.worker")
MAX_CONCURRENT = 16
UNACCEPTABLE = (Malformed, Invalid, TooLarge)
"""What the server says of an outcome itself. Any other refusal may be about the moment."""


class Stragglers:
    """Each is told in a task of its own, until the engine has it, its lease is gone, or there is no way to tell it.

    What cannot be told as it is, is told as a plain error. If even that cannot, it is given up: its lease is renewed no
    more, so that the job is reclaimed and runs elsewhere.
    """

    def __init__(
        self,
        reach: WorkerApi,
        clock: Clock,
        terms: LeaseTerms,
        new_backoff: Callable[[], Backoff],
        ended: Callable[[PendingOutcome], None],
    ) -> None:
        self._reach = reach
        self._clock = clock
        self._terms = terms
        self._new_backoff = new_backoff
        self._ended = ended
        self._few = asyncio.Semaphore(MAX_CONCURRENT)
        self._tasks: dict[PendingOutcome, asyncio.Task[None]] = {}

    def add(self, group: Sequence[PendingOutcome]) -> None:
        for one in group:
            self._tasks[one] = asyncio.ensure_future(self._follow(one))

    def unsettled(self) -> Iterator[Attempt]:
        for one in self._tasks:
            yield one.attempt

    def close(self) -> None:
        """Give up all that is left."""
        for task in self._tasks.values():
            task.cancel()

    async def _follow(self, one: PendingOutcome) -> None:
        try:
            await self._tell(one)
        except Exception:
            logger.exception("%s: its outcome cannot be told", one.attempt)
        finally:
            del self._tasks[one]
            self._ended(one)

    async def _tell(self, one: PendingOutcome) -> None:
        backoff = self._new_backoff()
        while self._clock.monotonic() < self._terms.given_up(one.attempt.lease_ends):
            error = await self._try(one)
            if error is None:
                return
            if isinstance(error, PenstockError) and not await self._is_its_own(one, error):
                await backoff.wait(error)
            elif not self._simplify(one, error):
                logger.error("%s: its outcome cannot be recorded: %s; its lease runs out", one.attempt, error)
                return
        logger.warning("%s: its lease ended before the outcome could be recorded; discarded", one.attempt)

    async def _try(self, one: PendingOutcome) -> Exception | None:
        """Tell it by itself; None when the engine has answered for it, else why it did not."""
        try:
            async with self._few:
                refused = await tell_engine(self._reach, [one])
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this one alone
            return error
        if unsure_of([one], refused):
            return StoreUnavailable("its shard did not answer")
        for refusal in refused:
            logger.warning("%s: its outcome was refused, the lease is %s", one.attempt, refusal.loss)
        return None

    async def _is_its_own(self, one: PendingOutcome, error: PenstockError) -> bool:
        """Whether it is the outcome that the server cannot take.

        Where the server does not say so, that is certain only after it has failed for as long as a lease lasts, while
        the same call with nothing in it went through.
        """
        if isinstance(error, UNACCEPTABLE):
            return True
        if await concerns_all(error, lambda: self._reach.settle([])):
            return False
        now = self._clock.monotonic()
        if one.failing_since is None:
            one.failing_since = now
        return one.simplified or now - one.failing_since >= self._terms.lease

    def _simplify(self, one: PendingOutcome, error: Exception) -> bool:
        """Replace it by a plain error; False if it is one already, or has nothing to be left out."""
        plain = None if one.simplified else simplify(one.attempt.claim, one.telling, readable(error))
        if plain is None:
            return False
        logger.error("%s: its outcome cannot be recorded: %s; it fails", one.attempt, readable(error))
        one.telling, one.simplified = plain, True
        return True
