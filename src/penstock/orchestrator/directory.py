"""The shard directory: follows the map that is stored on the shards, and opens and finds the shards of it."""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

import msgspec

from penstock.model.clock import Clock, within
from penstock.model.errors import Conflict, PenstockError, StoreUnavailable, Unavailable
from penstock.model.ids import ShardId
from penstock.model.notices import Name, Notice, NoticeKind, newest, notice, notice_change
from penstock.model.sdk_keys import read_sdk_key
from penstock.model.shards import RING, Ring, ShardMap, ShardMember, ShardNotice, choose, merged
from penstock.orchestrator.fan_out import ask_all
from penstock.orchestrator.shard import CALL_DEADLINE, RETRY_AFTER_SECONDS, GuardedShard
from penstock.orchestrator.supervisor import OpenShard, ShardSupervisor
from penstock.store.seam import Shard

logger = logging.getLogger("penstock.orchestrator")

REFRESH_EVERY = timedelta(seconds=1)
ABOUT_SHARDS = frozenset({NoticeKind.SHARD, NoticeKind.RING})
REMEMBERED = ABOUT_SHARDS | {NoticeKind.KEY}
"""Kinds of notices that count even while no shard that stores them answers: the shard map and API keys."""
FIRST_TRIES = timedelta(seconds=10)
"""How long the start waits for shards that neither open nor fail."""


class ShardDirectory:
    """Opens, supervises and closes the shards of the map, and finds the shard of a job or a key."""

    def __init__(
        self,
        configured: ShardMap,
        open_shard: OpenShard,
        clock: Clock,
        rng: random.Random,
        deadline: timedelta = CALL_DEADLINE,
    ) -> None:
        self.configured = configured
        self.map = configured
        self._open_shard = open_shard
        self._clock = clock
        self._rng = rng
        self._deadline = deadline
        self._supervisors: dict[ShardId, ShardSupervisor] = {}
        self._by_number: Sequence[GuardedShard] = ()
        self._remembered: dict[Name, Notice] = {}
        self._repairs: dict[ShardId, asyncio.Task[None]] = {}
        self._refreshed = clock.monotonic()
        self._following: asyncio.Task[None] | None = None
        self._closed = False
        self.changing = asyncio.Lock()
        """Held while the map is read or changed, until it is applied: no older map is applied after a newer one."""

    async def start(self) -> None:
        """Return once at least one shard is open, and all have been tried; StoreUnavailable if none opens."""
        await self.apply(self.configured)
        tries = [asyncio.ensure_future(supervisor.tried.wait()) for supervisor in self._supervisors.values()]
        await asyncio.wait(tries, timeout=FIRST_TRIES.total_seconds())
        for trial in tries:
            trial.cancel()
        if not self.healthy:
            reasons = "; ".join(f"shard {one.shard}: {one.breaker.reason or 'no answer'}" for one in self.all)
            await self.close()
            raise StoreUnavailable(f"no shard can be opened: {reasons}")
        self._following = asyncio.create_task(self._follow(), name="shard map")

    async def look_after(self) -> None:
        """Probe each shard once, or open it."""
        await asyncio.gather(*(supervisor.step() for supervisor in list(self._supervisors.values())))

    # -- what there is

    @property
    def all(self) -> Sequence[GuardedShard]:
        """Every shard of the map, by number."""
        return self._by_number

    @property
    def healthy(self) -> Sequence[GuardedShard]:
        return [shard for shard in self.all if shard.healthy]

    def unavailable(self) -> tuple[ShardId, ...]:
        return tuple(shard.shard for shard in self.all if not shard.healthy)

    def find(self, number: ShardId) -> GuardedShard | None:
        supervisor = self._supervisors.get(number)
        return None if supervisor is None else supervisor.guarded

    def shard_for_key(self, key: str) -> GuardedShard:
        """The shard that a key lives on."""
        number = self.shard_for(key)
        if (shard := self.find(number)) is None:
            raise unknown(number)
        return shard

    def check_open(self) -> None:
        """Raise StoreUnavailable once this is closed."""
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def shard_for(self, key: str | None) -> ShardId:
        """The shard of a key, healthy or not; without a key, any healthy shard that takes new jobs."""
        self.check_open()
        if key is not None:
            return self._shard_for_key(key)
        if len(self._by_number) == 1 and self._by_number[0].takes_new_jobs:
            return self._by_number[0].member.number
        chosen = choose([shard.member for shard in self.healthy], self._rng)
        if chosen is None:
            raise none_left("no shard takes new jobs now", self.unavailable())
        return chosen

    def epoch(self, key: str) -> int | None:
        """The epoch of the ring by which a key's shard is chosen; None for a key that names its shard."""
        named = read_sdk_key(key)
        return None if named is not None and named.home is not None else self.map.epoch

    def takers(self) -> dict[ShardId, float] | None:
        """The healthy shards that take new jobs, with their weights; None where there is only one shard."""
        if len(self.all) == 1:
            return None
        return {shard.shard: shard.member.weight for shard in self.healthy if shard.member.takes_new_jobs}

    def _shard_for_key(self, key: str) -> ShardId:
        named = read_sdk_key(key)
        if named is not None and named.home is not None:
            return named.home
        if not self.map.ring.shards:
            raise none_left("no shard of the map is keyed, so no key has a place: penstock shards set N --keyed", ())
        return self.map.ring.shard_for(key)

    def former_shards(self, key: str) -> list[GuardedShard]:
        """The other shards that a key lived on before the ring changed, as far as they are still in the map."""
        return [shard for number in self.map.ring.former_shards(key) if (shard := self.find(number)) is not None]

    async def now(self) -> datetime:
        """The clock of the first shard that answers."""
        *others, last = self.healthy or (None,)
        for shard in others:
            try:
                return await shard.now()
            except Unavailable:
                continue
        if last is None:
            raise none_left("no shard answers", self.unavailable())
        return await last.now()

    # -- the map

    async def notices(self) -> dict[Name, Notice]:
        """The newest notice about each thing, of all shards. Shards that lack it or have an older one are repaired."""
        said = await ask_all(self.healthy, lambda shard: shard.notices())
        self.remember(chain(*said.values()))
        counting = newest(chain(self._remembered.values(), *said.values()))
        for shard, notices in said.items():
            known = {notice.about: notice for notice in notices}
            self._repair(shard, [one for about, one in counting.items() if known.get(about) != one])
        return counting

    async def refresh(self) -> None:
        """Read the notices about shards and apply them; while holding `changing`.

        The first time that all configured shards answer, their ring is stored on them. From then on the stored ring
        counts: settings that differ between processes cannot give a key two shards.
        """
        self._refreshed = self._clock.monotonic()
        await self.notices()
        if not self._ring_known and not self.unavailable():
            await self._store_configured_ring()
        await self.apply(merged(self.configured, self.about_shards))

    async def _store_configured_ring(self) -> None:
        try:
            if not await self.put_ring(self.configured.ring):
                # Another process was faster.
                await self.notices()
        except Conflict as error:
            logger.debug("the ring is written down later: %s", error)

    @property
    def about_shards(self) -> list[Notice]:
        """The notices about shards."""
        return [one for one in self._remembered.values() if one.kind in ABOUT_SHARDS]

    @property
    def _ring_known(self) -> bool:
        return any(one.kind == NoticeKind.RING for one in self.about_shards)

    async def catch_up(self) -> None:
        """Refresh, because a shard goes by another map than this process did.

        On return, shards that were behind have been repaired, and new ones opened.
        """
        since = self._clock.monotonic()
        async with self.changing:
            if self._refreshed <= since:
                await self.refresh()
        if repairs := list(self._repairs.values()):
            await asyncio.wait(repairs)
        await self._let_open(self._supervisors)

    async def put_ring(self, ring: Ring) -> bool:
        """Make this the ring; False when another was stored since the map was read. While holding `changing`.

        The first shard of the present ring decides between two processes that change it at once. If this process dies
        after that, the others repair the remaining shards when they read the map.
        """
        change = notice_change(
            NoticeKind.RING, RING, msgspec.json.encode(ring), await self.now(), newest(self.about_shards)
        )
        deciding = [shard for shard in self.healthy if shard.shard in self.map.ring.shards]
        if not deciding:
            raise none_left("no shard of the ring answers", self.unavailable())
        (told,) = await deciding[0].change_notices([change])
        if told:
            self.remember([change.notice])
            await asyncio.gather(*(_put_notices(shard, [change.notice]) for shard in self.healthy))
        return told

    async def put_shard_notices(self, said: Mapping[ShardId, ShardNotice | None]) -> None:
        """Store notices about shards on every healthy shard; None: it left the map."""
        known, now = newest(self.about_shards), await self.now()
        values = {str(number): None if one is None else msgspec.json.encode(one) for number, one in said.items()}
        notices = [notice(NoticeKind.SHARD, name, value, now, known) for name, value in values.items()]
        await ask_all(self.healthy, lambda shard: shard.put_notices(notices))
        self.remember(notices)

    def remember(self, notices: Iterable[Notice]) -> None:
        """Keep these notices, so that they count also while no shard that stores them answers."""
        told = [one for one in notices if one.kind in REMEMBERED]
        self._remembered = newest([*self._remembered.values(), *told])

    async def refresh_unknown(self, numbers: Iterable[ShardId]) -> None:
        """Refresh, unless that was just done, and wait until shards of these numbers are opened: none is known yet."""
        if self._clock.monotonic() - self._refreshed >= REFRESH_EVERY.total_seconds() / 4:
            async with self.changing:
                await self.refresh()
        await self._let_open(numbers)

    async def _let_open(self, numbers: Iterable[ShardId]) -> None:
        for number in list(numbers):
            if (supervisor := self._supervisors.get(number)) is not None:
                await within(self._deadline, supervisor.tried.wait())

    async def apply(self, wanted: ShardMap, opened: Mapping[ShardId, Shard] | None = None) -> None:
        """Make the shards in use those of this map; `opened` are new ones that are open already."""
        if self._closed:
            return
        self.map = wanted
        gone = [
            self._supervisors.pop(number)
            for number, supervisor in list(self._supervisors.items())
            if number not in wanted.members or supervisor.guarded.member.url != wanted.members[number].url
        ]
        for member in wanted.members.values():
            self._supervise(member, (opened or {}).get(member.number))
        self._by_number = [self._supervisors[number].guarded for number in sorted(self._supervisors)]
        await _stop(gone)

    def _supervise(self, member: ShardMember, opened: Shard | None) -> None:
        if (supervisor := self._supervisors.get(member.number)) is not None:
            supervisor.change(member)
        else:
            self._supervisors[member.number] = ShardSupervisor(
                member, self._open_shard, self._clock, self._rng, deadline=self._deadline, opened=opened
            )

    async def _follow(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_EVERY * self._rng.uniform(0.8, 1.2))
            try:
                async with self.changing:
                    await self.refresh()
            except Unavailable as error:
                logger.debug("the shard map cannot be read, the last one holds: %s", error)
            except Exception:
                logger.exception("the shard map cannot be followed, the last one holds")

    def _repair(self, shard: GuardedShard, lacking: Sequence[Notice]) -> None:
        """Store the notices that a shard lacks on it, in the background; one repair of a shard at a time."""
        if lacking and shard.shard not in self._repairs and not self._closed:
            task = self._repairs[shard.shard] = asyncio.create_task(_put_notices(shard, lacking))
            task.add_done_callback(lambda _: self._repairs.pop(shard.shard, None))

    async def close(self) -> None:
        """Stop following the map, stop probing and close every shard. May be repeated."""
        self._closed = True
        tasks = [*self._repairs.values(), *([self._following] if self._following else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        gone, self._supervisors, self._by_number = list(self._supervisors.values()), {}, ()
        await _stop(gone)


async def _put_notices(shard: GuardedShard, lacking: Sequence[Notice]) -> None:
    """The ring by itself: it may have to wait for a user's transaction."""
    rings = [one for one in lacking if one.kind == NoticeKind.RING]
    for notices in ([one for one in lacking if one not in rings], rings):
        try:
            if notices:
                await shard.put_notices(notices)
        except PenstockError as error:
            logger.debug("notices are stored later: %s", error)


async def _stop(supervisors: Iterable[ShardSupervisor]) -> None:
    for end in await asyncio.gather(*(supervisor.stop() for supervisor in supervisors), return_exceptions=True):
        if isinstance(end, BaseException):
            logger.warning("closing a shard: %s", end)


def unknown(number: ShardId) -> StoreUnavailable:
    return StoreUnavailable(
        f"shard {number} is in the ring, but this process does not know where it is: add its URL to store.shards",
        shard=number,
        retry_after=RETRY_AFTER_SECONDS,
    )


def none_left(message: str, missing: Sequence[ShardId]) -> StoreUnavailable:
    """The error when no shard is left to ask; names those that do not answer."""
    named = f" (not answering: {', '.join(map(str, missing))})" if missing else ""
    return StoreUnavailable(f"{message}{named}; retry in a moment", retry_after=RETRY_AFTER_SECONDS)
