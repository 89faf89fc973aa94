"""The heartbeat: renews the leases of a worker's attempts and acts on the answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from penstock.model.clock import Clock, seconds, within
from penstock.model.errors import NotFound, Refused, Unauthorized, Unavailable
from penstock.model.job import Lease, Loss, Renewal
from penstock.model.ports import WorkerApi
from penstock.model.text import readable
from penstock.model.workers import DrainRequest, Worker
from penstock.worker.agent.attempt import Attempt, LeaseTerms, StopReason
from penstock.worker.agent.outage import Backoff, Outage, concerns_all

logger = logging.getLogger("penstock.worker")
MIN_INTERVAL_SECONDS = 0.25


class Leased(Protocol):
    """Holds the attempts whose leases are renewed."""

    def renewable(self) -> list[Attempt]:
        """Attempts whose leases are valid; those whose lease has ended are stopped."""
        ...

    def stop(self, attempt: Attempt, reason: StopReason) -> None: ...


class Heartbeat:
    """Renews every lease each heartbeat, and single leases earlier when a job reports progress."""

    def __init__(
        self,
        api: WorkerApi,
        leased: Leased,
        describe: Callable[[], Worker],
        join: Callable[[], Awaitable[object]],
        drain: Callable[[DrainRequest], None],
        terms: LeaseTerms,
        clock: Clock,
        outage: Outage,
        backoff: Backoff,
    ) -> None:
        self._api = api
        self._leased = leased
        self._describe = describe
        self._join = join
        self._drain = drain
        self._terms = terms
        self._clock = clock
        self._outage = outage
        self._backoff = backoff
        self._urgent: dict[Attempt, None] = {}
        self._news = asyncio.Event()
        self._due_at = clock.monotonic() + terms.heartbeat

    def soon(self, attempt: Attempt) -> None:
        """Renew this lease before the next heartbeat: it carries progress, or a large part of it has passed."""
        self._urgent[attempt] = None
        self._news.set()

    def now(self) -> None:
        """Send the next heartbeat at once."""
        self._due_at = self._clock.monotonic()
        self._news.set()

    async def step(self) -> None:
        """Wait for the next reason to renew; renew."""
        await within(seconds(max(0.0, self._due_at - self._clock.monotonic())), self._news.wait())
        self._news.clear()
        try:
            await self._beat()
        except Unavailable as error:
            self.now()
            await self._backoff.wait(error)
        else:
            self._backoff.over()
            await self._clock.sleep(seconds(MIN_INTERVAL_SECONDS))

    async def _beat(self) -> None:
        """Renew all leases if that is due, else only the urgent ones."""
        urgent, self._urgent = self._urgent, {}
        asked_at = self._clock.monotonic()
        if asked_at < self._due_at:
            await self.renew(list(urgent))
            return
        if self._outage.on:
            await self._join()
        await self.renew(self._leased.renewable())
        self._due_at = asked_at + self._terms.heartbeat

    async def renew(self, attempts: list[Attempt]) -> None:
        """Renew these leases and act on the answers. A renewed lease counts from before the call."""
        asked_at = self._clock.monotonic()
        leases = [attempt.take_progress() for attempt in attempts]
        try:
            renewals = await self._renew(leases)
        except Unavailable as error:
            if not await concerns_all(error, lambda: self._renew([])):
                await self._renew_plain(attempts, error)
                return
            for attempt, lease in zip(attempts, leases, strict=True):
                attempt.progress = attempt.progress or lease.progress
            raise
        except (NotFound, Unauthorized) as error:
            await self._rejoin_if_unknown(error)
            return
        except Exception as error:  # noqa: BLE001 - one bad progress report must not cost the others their leases
            await self._renew_plain(attempts, error)
            return
        for attempt, lease, renewal in zip(attempts, leases, renewals, strict=True):
            self._apply(attempt, lease, renewal, asked_at)

    async def _renew(self, leases: Sequence[Lease]) -> Sequence[Renewal]:
        """One answer per lease, in order; drains if the answer asks for it."""
        answer = await self._api.renew(self._describe(), leases)
        if answer.drain is not None:
            self._drain(answer.drain)
        return answer.renewals

    async def _rejoin_if_unknown(self, error: Refused) -> None:
        """Join again if the server does not know this worker."""
        logger.warning("renewing was refused: %s", error)
        if isinstance(error, NotFound):
            await self._join()

    async def _renew_plain(self, attempts: list[Attempt], error: Exception) -> None:
        """Renew each lease separately and without progress, so that one refusal costs no other lease."""
        logger.warning("%d leases were not renewed together: %s; each is by itself", len(attempts), readable(error))
        for attempt in attempts:
            asked_at = self._clock.monotonic()
            lease = Lease(attempt.claim.job, attempt.claim.fence, begun=attempt.begun)
            try:
                [renewal] = await self._renew([lease])
            except Refused as refused:
                logger.warning("%s: its lease is not renewed: %s", attempt, refused)
            else:
                self._apply(attempt, lease, renewal, asked_at)

    def _apply(self, attempt: Attempt, lease: Lease, renewal: Renewal, asked_at: float) -> None:
        if renewal.loss is Loss.UNSURE:
            # Its shard did not answer: the lease keeps its end, and the next heartbeat tries again.
            return
        if renewal.loss is not None:
            self._leased.stop(attempt, StopReason.LOST)
            return
        if renewal.cancel:
            self._leased.stop(attempt, StopReason.CANCELLED)
        attempt.renewed(lease, asked_at + self._terms.lease)
