"""In the agent: outcomes and releases, on their way to the engine."""

import asyncio
import logging
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
"""How often a call is made that the server answers but does not take, before its parts are told one by one."""
AGAIN_SECONDS = 0.5
LOG_SECONDS = 1.0
"""How long an outcome waits for its log lines to be kept: none are, once the attempt has ended."""
RETRY_PAUSE = seconds(0.1)
REFUSED = seconds(2.0)
MAX_CONCURRENT = 16
UNACCEPTABLE = (Malformed, Invalid, TooLarge)
"""What the server says of an outcome itself. Any other refusal may be about the moment."""


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


async def tell_engine(api: WorkerApi, group: Sequence[PendingOutcome]) -> list[Refusal]:
    """Tell what goes in one call; what was refused of it."""
    telling = group[0].telling
    if isinstance(telling, Release):
        return await api.release([one.attempt.lease for one in group], suspects=telling.suspect)
    return await api.settle([one.telling for one in group if isinstance(one.telling, Outcome)])


def unsure_of(group: Sequence[PendingOutcome], refused: Sequence[Refusal]) -> list[PendingOutcome]:
    """Those that the engine is to be told again: their shard gave no answer."""
    unsure = {Lease(one.job, one.fence) for one in refused if one.unsure}
    return [one for one in group if one.attempt.lease in unsure] if unsure else []


class Settler:
    """Tells the engine how attempts ended. What piles up while one call runs goes with the next.

    Kept and tried again while the engine is unavailable, for a while beyond the lease too: the fence says whether
    somebody else has the job. What waits for its own shard or its own log holds up nothing else. If a call fails for a
    reason that lies in what it says, each part of it is told by itself.
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
        self._waiting: list[PendingOutcome] = []
        self._telling: list[PendingOutcome] = []
        self._stragglers = Stragglers(api, clock, terms, new_own_backoff, self._straggler_ended)
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
                refused = await tell_engine(self._api, group)
            except Exception as error:  # noqa: BLE001 - what nobody foresaw must not hold up everyone's outcomes
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


class Stragglers:
    """Each is told in a task of its own, until the engine has it, its lease is gone, or there is no way to tell it.

    What cannot be told as it is, is told as a plain error. If even that cannot, it is given up: its lease is renewed no
    more, so that the job is reclaimed and runs elsewhere.
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
                refused = await tell_engine(self._api, [one])
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
        if await concerns_all(error, lambda: self._api.settle([])):
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
