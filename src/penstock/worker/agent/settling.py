"""In the agent: outcomes and releases, on their way to the engine."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

from penstock.engine.reach import Reach
from penstock.model.errors import Refused, Unavailable
from penstock.model.job import ErrorCode, Lease, Loss
from penstock.model.timing import Clock, seconds
from penstock.model.wire import Outcome, Refusal
from penstock.worker.agent.attempt import Attempt
from penstock.worker.agent.ending import Discard, Release, Telling, attempt_error
from penstock.worker.agent.logs import Logs
from penstock.worker.agent.outage import Backoff
from penstock.worker.agent.terms import Terms

LOGGER = logging.getLogger("penstock.worker")
CALL_OUTCOMES = 1_000
CALL_BYTES = 4 * 1024 * 1024
AGAIN = seconds(0.5)

Told = tuple[Attempt, Telling]


class Settling:
    """Tells the engine how attempts ended. What piles up while one call runs goes with the next.

    Kept and tried again while the engine is unavailable, until the lease is gone: then somebody else has the job.
    """

    def __init__(self, reach: Reach, clock: Clock, logs: Logs, terms: Terms, backoff: Backoff) -> None:
        self._reach = reach
        self._clock = clock
        self._logs = logs
        self._terms = terms
        self._backoff = backoff
        self._waiting: list[Told] = []
        self._telling: list[Told] = []
        self._unsure: set[Lease] = set()
        self._news = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def tell(self, told: Sequence[Told]) -> None:
        """Tell these; what is to be discarded is not."""
        for attempt, telling in told:
            if type(telling) is Discard:
                LOGGER.warning("%s: %s; its outcome is discarded", attempt, attempt.reason)
                self._logs.forget(attempt)
            else:
                self._waiting.append((attempt, telling))
        if self._waiting:
            self._quiet.clear()
            self._news.set()

    def unsettled(self) -> Iterator[Attempt]:
        """Attempts that have ended and whose leases are still needed."""
        for attempt, _ in (*self._waiting, *self._telling):
            yield attempt

    async def quiet(self) -> None:
        """Return when everything has been told, or given up."""
        await self._quiet.wait()

    async def step(self) -> None:
        """Wait for news and tell it; after a failure wait a moment and keep what is still ours."""
        await self._news.wait()
        self._news.clear()
        self._telling = self._take()
        try:
            await self._tell()
            self._telling = [one for one in self._telling if one[0].lease in self._unsure] if self._unsure else []
            await self._rest()
        except Unavailable as error:
            await self._backoff.wait(error)
        finally:
            self._keep_untold()

    async def _rest(self) -> None:
        """Where a shard did not answer, what was told to it is told again after a while."""
        if not self._unsure:
            self._backoff.over()
            return
        self._unsure.clear()
        await self._clock.sleep(AGAIN)

    def _keep_untold(self) -> None:
        self._waiting[:0] = self._still_ours(self._telling)
        self._telling = []
        if self._waiting:
            self._news.set()
        else:
            self._quiet.set()

    def _take(self) -> list[Told]:
        """As much as fits in one call, oldest first."""
        size = 0
        for count, (_, telling) in enumerate(self._waiting):
            size += len(telling.result) if type(telling) is Outcome else 0
            if count == CALL_OUTCOMES or (count and size > CALL_BYTES):
                taken, self._waiting = self._waiting[:count], self._waiting[count:]
                return taken
        taken, self._waiting = self._waiting, []
        return taken

    def _still_ours(self, told: list[Told]) -> list[Told]:
        now = self._clock.monotonic()
        ours = [one for one in told if now < self._terms.gone(one[0].lease_ends)]
        for attempt, _ in told:
            if now >= self._terms.gone(attempt.lease_ends):
                self._logs.forget(attempt)
                LOGGER.warning("%s: its lease ended before the outcome could be recorded; discarded", attempt)
        return ours

    async def _tell(self) -> None:
        outcomes = [telling for _, telling in self._telling if type(telling) is Outcome]
        given_back = [one for one in self._telling if type(one[1]) is Release]
        innocent = [attempt.lease for attempt, telling in given_back if telling == Release()]
        suspects = [attempt.lease for attempt, telling in given_back if telling == Release(suspect=True)]
        await self._logs.flush([attempt for attempt, _ in self._telling])
        if outcomes:
            await self._settle(outcomes)
        if innocent:
            self._report(await self._reach.release(innocent))
        if suspects:
            self._report(await self._reach.release(suspects, suspects=True))

    async def _settle(self, outcomes: Sequence[Outcome]) -> None:
        try:
            self._report(await self._reach.settle(outcomes))
        except Refused as error:
            await self._settle_apart(outcomes, error)

    async def _settle_apart(self, outcomes: Sequence[Outcome], error: Refused) -> None:
        """One outcome the engine cannot take must not hold up the others."""
        if len(outcomes) > 1:
            for outcome in outcomes:
                await self._settle([outcome])
        elif outcomes[0].error is None and not outcomes[0].cancelled:
            await self._settle([self._unacceptable(outcomes[0], error)])
        else:
            LOGGER.error("job %s: its outcome was refused: %s", outcomes[0].job, error)

    def _unacceptable(self, outcome: Outcome, error: Refused) -> Outcome:
        [claim] = [attempt.claim for attempt, _ in self._telling if attempt.claim.job == outcome.job][:1]
        told = attempt_error(claim, ErrorCode.INVALID_RESULT, f"the result was refused: {error.message}")
        return Outcome(job=outcome.job, fence=outcome.fence, error=told)

    def _report(self, refused: Sequence[Refusal]) -> None:
        for refusal in refused:
            if refusal.loss is Loss.UNSURE:
                self._unsure.add(Lease(refusal.job, refusal.fence))
                continue
            LOGGER.warning("job %s: its outcome was refused, the lease is %s", refusal.job, refusal.loss)
