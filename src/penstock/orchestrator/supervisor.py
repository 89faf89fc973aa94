"""The supervisor of one shard: opens it, retries while that fails, and probes it as long as it is in use."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

from penstock.model.clock import Clock
from penstock.model.errors import PenstockError
from penstock.model.ids import ShardId
from penstock.model.shards import ShardMember, without_secrets
from penstock.orchestrator.shard import CALL_DEADLINE, GuardedShard, ShardBreaker
from penstock.store.seam import Shard

logger = logging.getLogger("penstock.orchestrator")

OpenShard = Callable[[ShardId, str], Awaitable[Shard]]
"""How the runtime opens the shard of this number at this URL; StoreUnavailable when it cannot."""

PROBE_EVERY = timedelta(seconds=1)
REOPEN_AT_MOST = timedelta(seconds=2)
OPEN_DEADLINE = timedelta(seconds=60)
"""Opening may have to migrate, which takes longer than any call."""


class ShardSupervisor:
    """The task that opens and probes one shard of the map."""

    def __init__(
        self,
        member: ShardMember,
        open_shard: OpenShard,
        clock: Clock,
        rng: random.Random,
        *,
        deadline: timedelta = CALL_DEADLINE,
        opened: Shard | None = None,
    ) -> None:
        self.guarded = GuardedShard(member, ShardBreaker(member.number, clock, deadline))
        self.tried = asyncio.Event()
        self._open_shard = open_shard
        self._clock = clock
        self._rng = rng
        self._tries = 0
        if opened is not None:
            self.guarded.adopt(opened)
        self._task = asyncio.create_task(self._supervise(), name=f"shard {member.number}")

    def change(self, member: ShardMember) -> None:
        """Go on with another weight or state."""
        self.guarded.member = member

    async def stop(self) -> None:
        """Stop probing and close the shard."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.guarded.detach()

    async def step(self) -> timedelta:
        """Open or probe once; how long to wait before the next time."""
        if not self.guarded.in_use:
            await self.guarded.detach()
        elif not self.guarded.opened:
            return await self._open()
        else:
            await self._probe()
        return self._about(PROBE_EVERY)

    async def _supervise(self) -> None:
        while True:
            delay = PROBE_EVERY
            try:
                delay = await self.step()
            except Exception:
                logger.exception("shard %s: a step of its supervisor failed; going on", self.guarded.shard)
            self.tried.set()
            await self._clock.sleep(delay)

    async def _open(self) -> timedelta:
        member = self.guarded.member
        try:
            async with asyncio.timeout(OPEN_DEADLINE.total_seconds()):
                shard = await self._open_shard(member.number, member.url)
        except (PenstockError, TimeoutError) as error:
            return self._not_opened(f"{error}" or "it could not be opened in time")
        self._tries = 0
        self.guarded.adopt(shard)
        self.guarded.breaker.record(ok=True)
        await self._probe()
        return self._about(PROBE_EVERY)

    def _not_opened(self, reason: str) -> timedelta:
        member = self.guarded.member
        reason = without_secrets(reason, member.url)
        logger.warning("shard %s cannot be opened: %s", member.number, reason)
        self.guarded.breaker.record(ok=False, reason=reason)
        self._tries += 1
        return self._about(min(PROBE_EVERY * self._tries, REOPEN_AT_MOST))

    async def _probe(self) -> None:
        try:
            await self.guarded.probe()
        except PenstockError as error:
            logger.debug("probing: %s", error)

    def _about(self, span: timedelta) -> timedelta:
        return span * self._rng.uniform(0.8, 1.2)
