"""In the agent: outcomes and releases, on their way to the engine."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence, Set

from penstock.model.clock import Clock, seconds, within
from penstock.model.errors import ServerUnavailable, Unauthorized, Unavailable
from penstock.model.job import Loss
from penstock.model.ports import WorkerApi
from penstock.model.wire.jobs import Outcome, Refusal
from penstock.worker.agent.attempt import NEVER, Attempt, Discard, LeaseTerms, Telling, Wakeup
from penstock.worker.agent.declined import Declined
from penstock.worker.agent.logs import Logs
from penstock.worker.agent.outage import Backoff, concerns_all
from penstock.worker.agent.stragglers import PendingOutcome, Stragglers, calls_of, tell_engine, unsure_of

logger = logging.getLogger("penstock.worker")
CALL_OUTCOMES = 1_000
CALL_BYTES = 4 * 1024 * 1024
TRIES = 2
"""How often a call is made that the server answers but does not take, before its parts are told one by one."""
AGAIN_SECONDS = 0.5
LOG_SECONDS = 1.0
"""How long an outcome waits for its log lines to be kept: none are, once the attempt has ended."""
RETRY_PAUSE = seconds(0.1)
REFUSED = seconds(2.0)


class Settler:
    """Tells the engine how attempts ended. What piles up while one call runs goes with the next.

    Kept and tried again while the engine is unavailable, for a while beyond the lease too: the fence says whether
    somebody else has the job. What waits for its own shard or its own log holds up nothing else. If a call fails for a
    reason that lies in what it says, each part of it is told by itself.
    """

    def __init__(
        self,
        reach: WorkerApi,
        clock: Clock,
        logs: Logs,
        terms: LeaseTerms,
        backoff: Backoff,
        new_own_backoff: Callable[[], Backoff],
        declined: Declined,
    ) -> None:
        self._reach = reach
        self._clock = clock
        self._logs = logs
        self._terms = terms
        self._backoff = backoff
        self._declined = declined
        self._waiting: list[PendingOutcome] = []
        self._telling: list[PendingOutcome] = []
        self._stragglers = Stragglers(reach, clock, terms, new_own_backoff, self._straggler_ended)
        self._news = asyncio.Event()
        self._done = Wakeup()
        logs.when_sent(self._news.set)

    def tell(self, told: Sequence[tuple[Attempt, Telling]]) -> None:
        """Tell these; what is to be discarded is not."""
        log_until = self._clock.monotonic() + LOG_SECONDS
        for attempt, telling in told:
            if isinstance(telling, Discard):
                logger.warning("%s: %s; its outcome is discarded", attempt, attempt.reason)
                self._logs.forget(attempt)
            else:
                self._waiting.append(PendingOutcome(attempt, telling, log_until=log_until))
                self._logs.hurry(attempt)
        if self._waiting:
            self._news.set()

    def unsettled(self) -> Iterator[Attempt]:
        """Attempts that have ended and whose leases are still needed."""
        for one in (*self._waiting, *self._telling):
            yield one.attempt
        yield from self._stragglers.unsettled()

    async def quiet(self) -> None:
        """Return when everything has been told, or given up."""
        while any(True for _ in self.unsettled()):
            await self._done.wait()

    def close(self) -> None:
        """Give up what is left."""
        self._stragglers.close()

    async def step(self) -> None:
        """Wait until something can be told and tell it; after a failure wait a moment and keep what is still ours."""
        await self._something_ready()
        self._telling = self._take()
        try:
            for group in calls_of(self._telling):
                await self._tell(group)
        except Unavailable as error:
            await self._backoff.wait(error)
        except Unauthorized as error:
            logger.warning("telling outcomes was refused: %s", error)
            await self._clock.sleep(REFUSED)
        else:
            self._backoff.over()
        finally:
            self._keep_untold()

    # -- what can be told now

    async def _something_ready(self) -> None:
        while (wait := self._next_ready_in()) > 0:
            self._news.clear()
            if wait == NEVER:
                await self._news.wait()
            else:
                await within(seconds(wait), self._news.wait())

    def _next_ready_in(self) -> float:
        now = self._clock.monotonic()
        return min((self._ready_at(one) - now for one in self._waiting), default=NEVER)

    def _ready_at(self, one: PendingOutcome) -> float:
        return max(one.ready_at, one.log_until) if self._logs.pending(one.attempt) else one.ready_at

    def _take(self) -> list[PendingOutcome]:
        """As much of what can be told as fits in one call, oldest first."""
        now, size = self._clock.monotonic(), 0
        taken: list[PendingOutcome] = []
        left: list[PendingOutcome] = []
        for one in self._waiting:
            length = len(one.telling.result) if isinstance(one.telling, Outcome) else 0
            full = len(taken) == CALL_OUTCOMES or (taken and size + length > CALL_BYTES)
            if full or self._ready_at(one) > now:
                left.append(one)
            else:
                size += length
                taken.append(one)
        self._waiting = left
        return taken

    def _keep_untold(self) -> None:
        self._waiting[:0] = self._still_ours([one for one in self._telling if not one.told])
        self._telling = []
        self._done.wake()

    def _still_ours(self, untold: list[PendingOutcome]) -> list[PendingOutcome]:
        now = self._clock.monotonic()
        for one in untold:
            if now >= self._terms.given_up(one.attempt.lease_ends):
                self._logs.forget(one.attempt)
                logger.warning("%s: its lease ended before the outcome could be recorded; discarded", one.attempt)
        return [one for one in untold if now < self._terms.given_up(one.attempt.lease_ends)]

    # -- telling it

    async def _tell(self, group: list[PendingOutcome]) -> None:
        """Tell what goes in one call. Unavailable or Unauthorized: whatever is said now would not be taken."""
        for left in reversed(range(TRIES)):
            try:
                refused = await tell_engine(self._reach, group)
            except Exception as error:  # noqa: BLE001 - what nobody foresaw must not hold up everyone's outcomes
                if await concerns_all(error, lambda: self._reach.settle([])):
                    await self._wait_for_engine(group, error)
                    return
                if not left or not isinstance(error, ServerUnavailable):
                    self._tell_apart(group, error)
                    return
            else:
                self._report(group, refused)
                return

    async def _wait_for_engine(self, group: list[PendingOutcome], error: Exception) -> None:
        """A shard that is away is asked again later; for a server that is, everything waits."""
        if isinstance(error, (ServerUnavailable, Unauthorized)):
            raise error
        self._tell_again(group)
        await self._clock.sleep(RETRY_PAUSE)

    def _tell_apart(self, group: list[PendingOutcome], error: Exception) -> None:
        logger.warning("%d outcomes were not taken together: %s; each is told by itself", len(group), error)
        for one in group:
            one.told = True
        self._stragglers.add(group)

    def _tell_again(self, group: Sequence[PendingOutcome]) -> None:
        again_at = self._clock.monotonic() + AGAIN_SECONDS
        for one in group:
            one.ready_at = again_at

    def _report(self, group: list[PendingOutcome], refused: Sequence[Refusal]) -> None:
        unsure = unsure_of(group, refused)
        for one in set(group).difference(unsure) if unsure else group:
            one.told = True
            self._logs.forget(one.attempt)
        self._tell_again(unsure)
        misfits = {refusal.job for refusal in refused if refusal.loss is Loss.GIVEN_BACK}
        for refusal in refused:
            if not refusal.unsure and refusal.job not in misfits:
                logger.warning("job %s: its outcome was refused, the lease is %s", refusal.job, refusal.loss)
        if misfits or self._declined.any:
            self._note_fits(group, misfits)

    def _note_fits(self, group: list[PendingOutcome], misfits: Set[str]) -> None:
        """Which jobs did not fit this worker's handlers, and which did: those that came to a result."""
        for one in group:
            if one.attempt.claim.job in misfits:
                logger.info("%s: its params do not fit the handler of this worker; given back for another", one.attempt)
                self._declined.given_back(one.attempt.claim.type)
        for one in group:
            if isinstance(one.telling, Outcome) and one.telling.error is None:
                self._declined.ran(one.attempt.claim.type)

    def _straggler_ended(self, one: PendingOutcome) -> None:
        self._logs.forget(one.attempt)
        self._done.wake()
