"""Leader election among processes: a role in the store, held for a time and renewed."""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from penstock.model.clock import Clock, seconds
from penstock.model.errors import Unavailable
from penstock.store.registry import Registry

logger = logging.getLogger("penstock.engine")

HELD_FOR = timedelta(seconds=10)
RENEWED_AFTER = timedelta(seconds=3)

T = TypeVar("T")


class Leadership:
    """A role, as one process knows it that wants to hold it.

    `fence` grows each time the role passes to another holder; None while this one does not hold it. `taken`: at the
    last answer of the store another process held it.
    """

    def __init__(self, store: Registry, clock: Clock, holder: str, role: str) -> None:
        self.fence: int | None = None
        self.taken = False
        self._store = store
        self._clock = clock
        self._holder = holder
        self._role = role
        self._acquired_at = float("-inf")

    @property
    def held(self) -> bool:
        """Whether the role is still held, by the time that has passed since it was last asked for."""
        return self.fence is not None and self._left() > timedelta(0)

    async def acquire(self) -> bool:
        """Acquire or renew the role; whether it is held. Unavailable when the store does not answer."""
        if not self.held or HELD_FOR - self._left() > RENEWED_AFTER:
            await self._renew()
        return self.held

    async def resign(self) -> None:
        """Release the role, so that another may have it at once; it expires when the store does not answer."""
        if self.fence is None:
            return
        self.fence = None
        try:
            await self._store.release_role(self._role, self._holder)
        except Unavailable as error:
            logger.debug("the role %s runs out by itself: %s", self._role, error)

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do the work and renew the role meanwhile; None if the role was lost before the work ended.

        The work is then cancelled: the next leader decides about what is not done yet.
        """
        working, keeping = asyncio.ensure_future(work), asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, keeping):
                task.cancel()
            await asyncio.wait({working, keeping})
        if not keeping.cancelled():
            keeping.result()
        return None if working.cancelled() else working.result()

    async def _keep(self) -> None:
        """Renew until the role is lost."""
        fence = self.fence
        while self.held and self.fence == fence:
            await self._clock.sleep(min(RENEWED_AFTER, self._left()))
            try:
                await self._renew()
            except Unavailable as error:
                logger.debug("the role %s is not renewed: %s", self._role, error)

    async def _renew(self) -> None:
        asked_at = self._clock.monotonic()
        fence = await self._store.acquire_role(self._role, self._holder, HELD_FOR)
        if fence != self.fence:
            logger.info("%s %s as %s", self._holder, "acts" if fence is not None else "stands by", self._role)
        self.fence, self.taken, self._acquired_at = fence, fence is None, asked_at

    def _left(self) -> timedelta:
        """How long the role is still held, counted from before it was asked for."""
        since = seconds(min(1e6, self._clock.monotonic() - self._acquired_at))
        return max(timedelta(0), HELD_FOR - since)
