"""Tells the engine the outcomes and releases of attempts."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Sequence, Set

from msgspec import Struct

from penstock.model.clock import Clock, seconds, within
from penstock.model.errors import (
    Invalid,
    Malformed,
    PenstockError,
    ServerUnavailable,
    StoreUnavailable,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from penstock.model.job import Lease, Loss
from penstock.model.ports import WorkerApi
from penstock.model.text import readable
from penstock.model.wire.jobs import Outcome, Refusal
from penstock.worker.agent.attempt import NEVER, Attempt, Discard, LeaseTerms, Release, Telling, Wakeup, simplify
from penstock.worker.agent.claimer import Declined
from penstock.worker.agent.logs import Logs
from penstock.worker.agent.outage import Backoff, concerns_all

logger = logging.getLogger("penstock.worker")
CALL_OUTCOMES = 1_000
CALL_BYTES = 4 * 1024 * 1024
TRIES = 2
"""How often a call that the server answers with an error is made before its parts are told one by one."""
AGAIN_SECONDS = 0.5
LOG_SECONDS = 1.0
"""How long an outcome waits for its log lines: the engine keeps none after the attempt has ended."""
RETRY_PAUSE = seconds(0.1)
WARN_EVERY_SECONDS = 10.0
REFUSED = seconds(2.0)
MAX_CONCURRENT = 16
UNACCEPTABLE = (Malformed, Invalid, TooLarge)
"""Errors that concern the outcome itself. Any other refusal may be temporary."""


class PendingOutcome(Struct, eq=False, gc=False):
    """The outcome of an attempt, not told before `ready_at`, nor before its log until `log_until`; monotonic seconds.

    `failing_since` is when the engine first failed to accept it alone; `simplified` if a plain error has replaced it.
    """

    attempt: Attempt
    telling: Outcome | Release
    ready_at: float = 0.0
    log_until: float = 0.0
    told: bool = False
    failing_since: float | None = None
    simplified: bool = False


def calls_of(pending: Sequence[PendingOutcome]) -> list[list[PendingOutcome]]:
    """Groups of outcomes that go in one call each, outcomes before releases."""
    outcomes = [one for one in pending if type(one.telling) is Outcome]
    if len(outcomes) == len(pending):
        return [outcomes] if outcomes else []
    innocent = [one for one in pending if one.telling == Release()]
    suspects = [one for one in pending if one.telling == Release(suspect=True)]
    return [group for group in (outcomes, innocent, suspects) if group]


async def tell_engine(api: WorkerApi, group: Sequence[PendingOutcome]) -> list[Refusal]:
    """Make one call; returns its refusals."""
    telling = group[0].telling
    if isinstance(telling, Release):
        return await api.release([one.attempt.lease for one in group], suspects=telling.suspect)
    return await api.settle([one.telling for one in group if type(one.telling) is Outcome])


def unsure_of(group: Sequence[PendingOutcome], refused: Sequence[Refusal]) -> list[PendingOutcome]:
    """Outcomes to be told again because their shard gave no answer."""
    unsure = {Lease(one.job, one.fence) for one in refused if one.unsure}
    return [one for one in group if one.attempt.lease in unsure] if unsure else []


class Settler:
    """Tells the engine how attempts ended, in batches: outcomes that arrive during one call go with the next.

    While the engine is unavailable outcomes are kept and tried again, for a while beyond the lease too: the fence
    protects a job that another worker has claimed. An outcome that waits for its shard or its log delays no other. If
    a call fails because of its content, each outcome is told separately.
    """

    def __init__(
        self,
        api: WorkerApi,
        clock: Clock,
        logs: Logs,
        terms: LeaseTerms,
        backoff: Backoff,
        new_own_backoff: Callable[[], Backoff],
        declined: Declined,
    ) -> None:
        self._api = api
        self._clock = clock
        self._logs = logs
        self._terms = terms
        self._backoff = backoff
        self._declined = declined
        self._warned_at = -math.inf
        self._waiting: list[PendingOutcome] = []
        self._telling: list[PendingOutcome] = []
        self._stragglers = Stragglers(api, clock, terms, new_own_backoff, self._straggler_ended)
        self._news = asyncio.Event()
        self._done = Wakeup()
        logs.when_sent(self._news.set)

    def tell(self, told: Sequence[tuple[Attempt, Telling]]) -> None:
        """Queue these; those to be discarded are only logged."""
        log_until = self._clock.monotonic() + LOG_SECONDS
        has_logs = self._logs.any_unsent
        for attempt, telling in told:
            if isinstance(telling, Discard):
                logger.warning("%s: %s; its outcome is discarded", attempt, attempt.reason)
                self._logs.forget(attempt)
            else:
                self._waiting.append(PendingOutcome(attempt, telling, 0.0, log_until))
                if has_logs:
                    self._logs.hurry(attempt)
        if self._waiting:
            self._news.set()

    def unsettled(self) -> Iterator[Attempt]:
        """Ended attempts whose leases are still needed."""
        for one in (*self._waiting, *self._telling):
            yield one.attempt
        yield from self._stragglers.unsettled()

    async def quiet(self) -> None:
        """Return when every outcome has been told or discarded."""
        while any(True for _ in self.unsettled()):
            await self._done.wait()

    def close(self) -> None:
        """Give up what is left."""
        self._stragglers.close()

    async def step(self) -> None:
        """Wait for outcomes that can be told and tell them. After a failure pause, and keep those not expired."""
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
        """How long until one of them can be told; zero or less if one can be told now."""
        now = self._clock.monotonic()
        soonest = NEVER
        for one in self._waiting:
            soonest = min(soonest, self._ready_at(one) - now)
            if soonest <= 0:
                break
        return soonest

    def _ready_at(self, one: PendingOutcome) -> float:
        return max(one.ready_at, one.log_until) if self._logs.pending(one.attempt) else one.ready_at

    def _take(self) -> list[PendingOutcome]:
        """Take the outcomes that can be told and fit in one call, oldest first."""
        now, size = self._clock.monotonic(), 0
        has_logs = self._logs.any_unsent
        taken: list[PendingOutcome] = []
        left: list[PendingOutcome] = []
        waiting = iter(self._waiting)
        for one in waiting:
            if (self._ready_at(one) if has_logs else one.ready_at) > now:
                left.append(one)
                continue
            size += len(one.telling.result) if type(one.telling) is Outcome else 0
            if taken and size > CALL_BYTES:
                left.append(one)
                break
            taken.append(one)
            if len(taken) == CALL_OUTCOMES:
                break
        left.extend(waiting)
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
        """Tell one call's outcomes. Unavailable or Unauthorized: no other call would succeed now."""
        for left in reversed(range(TRIES)):
            try:
                refused = await tell_engine(self._api, group)
            except Exception as error:  # noqa: BLE001 - an unexpected error must not delay the other outcomes
                if await concerns_all(error, lambda: self._api.settle([])):
                    await self._wait_for_engine(group, error)
                    return
                if not left or not isinstance(error, ServerUnavailable):
                    self._tell_apart(group, error)
                    return
            else:
                self._report(group, refused)
                return

    async def _wait_for_engine(self, group: list[PendingOutcome], error: Exception) -> None:
        """Tell the group again later if its shard is unavailable; raise if the server is."""
        if isinstance(error, (ServerUnavailable, Unauthorized)):
            raise error
        self._tell_again(group, str(error))
        await self._clock.sleep(RETRY_PAUSE)

    def _tell_apart(self, group: list[PendingOutcome], error: Exception) -> None:
        logger.warning("%d outcomes were not taken together: %s; each is told by itself", len(group), error)
        for one in group:
            one.told = True
        self._stragglers.add(group)

    def _tell_again(self, group: Sequence[PendingOutcome], reason: str) -> None:
        now = self._clock.monotonic()
        for one in group:
            one.ready_at = now + AGAIN_SECONDS
        if now - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = now
            logger.warning("%d outcomes cannot be recorded now (%s); they are told again", len(group), reason)

    def _report(self, group: list[PendingOutcome], refused: Sequence[Refusal]) -> None:
        unsure = unsure_of(group, refused) if refused else []
        has_logs = self._logs.any_unsent
        for one in set(group).difference(unsure) if unsure else group:
            one.told = True
            if has_logs:
                self._logs.forget(one.attempt)
        if unsure:
            self._tell_again(unsure, "their shard does not answer")
        misfits = {refusal.job for refusal in refused if refusal.loss is Loss.GIVEN_BACK}
        for refusal in refused:
            if not refusal.unsure and refusal.job not in misfits:
                logger.warning("job %s: its outcome was refused, the lease is %s", refusal.job, refusal.loss)
        if misfits or self._declined.any:
            self._note_fits(group, misfits)

    def _note_fits(self, group: list[PendingOutcome], misfits: Set[str]) -> None:
        """Record which types did not fit this worker's handlers, and which did: those whose job returned a result."""
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


class Stragglers:
    """Outcomes told one by one, each in its own task, until the engine has it, its lease has ended, or it is refused.

    An outcome that the engine cannot accept is replaced by a plain error. If that is not accepted either, it is
    discarded: its lease is no longer renewed, so that the job is reclaimed.
    """

    def __init__(
        self,
        api: WorkerApi,
        clock: Clock,
        terms: LeaseTerms,
        new_backoff: Callable[[], Backoff],
        ended: Callable[[PendingOutcome], None],
    ) -> None:
        self._api = api
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
        """Discard the remaining outcomes."""
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
        """Tell one outcome alone; None if the engine has answered, else the error."""
        try:
            async with self._few:
                refused = await tell_engine(self._api, [one])
        except Exception as error:  # noqa: BLE001 - it concerns this outcome alone
            return error
        if unsure_of([one], refused):
            return StoreUnavailable("its shard did not answer")
        for refusal in refused:
            logger.warning("%s: its outcome was refused, the lease is %s", one.attempt, refusal.loss)
        return None

    async def _is_its_own(self, one: PendingOutcome, error: PenstockError) -> bool:
        """Whether the server cannot accept this very outcome.

        If the server does not say so, that is certain only after it has failed for the length of a lease while an empty
        call succeeded.
        """
        if isinstance(error, UNACCEPTABLE):
            return True
        if await concerns_all(error, lambda: self._api.settle([])):
            return False
        now = self._clock.monotonic()
        if one.failing_since is None:
            one.failing_since = now
        return one.simplified or now - one.failing_since >= self._terms.lease

    def _simplify(self, one: PendingOutcome, error: Exception) -> bool:
        """Replace it by a plain error; False if that is not possible."""
        plain = None if one.simplified else simplify(one.attempt.claim, one.telling, readable(error))
        if plain is None:
            return False
        logger.error("%s: its outcome cannot be recorded: %s; it fails", one.attempt, readable(error))
        one.telling, one.simplified = plain, True
        return True
