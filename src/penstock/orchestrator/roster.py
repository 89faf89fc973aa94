"""The shards that are in use, as the map says now: what it reads, it applies; without reading, it goes on."""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

import msgspec

from penstock.model.errors import StoreUnavailable, Unavailable
from penstock.model.ids import ShardId
from penstock.model.notices import Name, Notice, NoticeKind, newest, notice
from penstock.model.shards import Member, ShardMap, Told, choose, home_of, merged
from penstock.model.timing import Clock, within
from penstock.orchestrator.guarded import GuardedShard
from penstock.orchestrator.health import CALL_DEADLINE, RETRY_AFTER_SECONDS
from penstock.orchestrator.keeper import Keeper, OpenShard
from penstock.orchestrator.spread import answered
from penstock.store.seam import Shard

logger = logging.getLogger("penstock.orchestrator")

REFRESH_EVERY = timedelta(seconds=1)
FIRST_TRIES = timedelta(seconds=10)
"""How long a start waits for shards that neither open nor fail."""


class Roster:
    """Opens, keeps and closes the shards of the map, and finds the one that a job or a key belongs to."""

    def __init__(
        self,
        settled: ShardMap,
        open_shard: OpenShard,
        clock: Clock,
        chance: random.Random,
        deadline: timedelta = CALL_DEADLINE,
    ) -> None:
        self.settled = settled
        self.map = settled
        self._open_shard = open_shard
        self._clock = clock
        self._chance = chance
        self._deadline = deadline
        self._keepers: dict[ShardId, Keeper] = {}
        self._by_number: Sequence[GuardedShard] = ()
        self.about_shards: list[Notice] = []
        self._repairs: dict[ShardId, asyncio.Task[None]] = {}
        self._refreshed = clock.monotonic()
        self._following: asyncio.Task[None] | None = None
        self._closed = False
        self.changing = asyncio.Lock()
        """Held by whoever reads or changes the map, from reading to applying: no older map is applied after a newer."""

    async def start(self) -> None:
        """Return once at least one shard is open, and all have been tried; StoreUnavailable if none opens."""
        await self.apply(self.settled)
        tries = [asyncio.ensure_future(keeper.tried.wait()) for keeper in self._keepers.values()]
        await asyncio.wait(tries, timeout=FIRST_TRIES.total_seconds())
        for trial in tries:
            trial.cancel()
        if not self.well:
            reasons = "; ".join(f"shard {one.shard}: {one.breaker.reason or 'no answer'}" for one in self.all)
            await self.close()
            raise StoreUnavailable(f"no shard can be opened: {reasons}")
        self._following = asyncio.create_task(self._follow(), name="shard map")

    # -- what there is

    @property
    def all(self) -> Sequence[GuardedShard]:
        """Every shard of the map, by number."""
        return self._by_number

    @property
    def well(self) -> Sequence[GuardedShard]:
        return [shard for shard in self.all if shard.well]

    def missing(self) -> tuple[ShardId, ...]:
        return tuple(shard.shard for shard in self.all if not shard.well)

    def find(self, number: ShardId) -> GuardedShard | None:
        keeper = self._keepers.get(number)
        return None if keeper is None else keeper.guarded

    def at(self, key: str) -> GuardedShard:
        """The shard that a key lives on."""
        return self._keepers[self.home(key)].guarded

    def home(self, key: str | None) -> ShardId:
        """The one place of a key, well or not; without a key, any shard that is well and takes new jobs."""
        if self._closed:
            raise closed()
        if key is not None:
            return self._home_of(key)
        chosen = choose([shard.member for shard in self.well], self._chance)
        if chosen is None:
            raise none_left("no shard takes new jobs now", self.missing())
        return chosen

    def _home_of(self, key: str) -> ShardId:
        if not (ring := self.map.ring):
            raise none_left("no shard of the map is keyed, so no key has a place: penstock shards set N --keyed", ())
        return home_of(key, ring)

    async def now(self) -> datetime:
        """The clock of the first shard that answers."""
        *others, last = self.well or (None,)
        for shard in others:
            try:
                return await shard.now()
            except Unavailable:
                continue
        if last is None:
            raise none_left("no shard answers", self.missing())
        return await last.now()

    # -- the map

    async def notices(self) -> dict[Name, Notice]:
        """What counts of all that the shards say. One that lacks something, or has something older, is told."""
        said = await answered(self.well, lambda shard: shard.notices())
        self._remember(chain(*said.values()))
        counting = newest(chain(self.about_shards, *said.values()))
        for shard, notices in said.items():
            known = {notice.about: notice for notice in notices}
            self._repair(shard, [one for about, one in counting.items() if known.get(about) != one])
        return counting

    async def refresh(self) -> None:
        """Read what was told about shards, and do it; while holding `changing`.

        The first time that all shards of the settings are there, their ring is written down. From then on it is what
        the shards say: settings that differ between processes cannot give a key two places.
        """
        self._refreshed = self._clock.monotonic()
        await self.notices()
        if not self.about_shards and not self.missing():
            await self.tell({one.number: Told(keyed=one.keyed) for one in self.settled.members.values()})
        await self.apply(merged(self.settled, self.about_shards))

    async def tell(self, said: Mapping[ShardId, Told | None]) -> None:
        """Tell every shard that is well about shards; None: it left the map."""
        known, now = newest(self.about_shards), await self.now()
        values = {str(number): None if one is None else msgspec.json.encode(one) for number, one in said.items()}
        notices = [notice(NoticeKind.SHARD, name, value, now, known) for name, value in values.items()]
        await answered(self.well, lambda shard: shard.tell(notices))
        self._remember(notices)

    def _remember(self, notices: Iterable[Notice]) -> None:
        """What was once said about shards is not forgotten because those that know it do not answer."""
        counting = newest([*self.about_shards, *notices])
        self.about_shards = [one for one in counting.values() if one.kind == NoticeKind.SHARD]

    async def learn(self, numbers: Iterable[ShardId]) -> None:
        """Refresh, unless that was just done, and let the shards be opened: somebody named some that are not known."""
        if self._clock.monotonic() - self._refreshed >= REFRESH_EVERY.total_seconds() / 4:
            async with self.changing:
                await self.refresh()
        for number in numbers:
            if (keeper := self._keepers.get(number)) is not None:
                await within(self._deadline, keeper.tried.wait())

    async def apply(self, wanted: ShardMap, opened: Mapping[ShardId, Shard] | None = None) -> None:
        """Make the shards in use those of this map; `opened` are new ones that somebody has opened already."""
        if self._closed:
            return
        self.map = wanted
        gone = [
            self._keepers.pop(number)
            for number, keeper in list(self._keepers.items())
            if number not in wanted.members or keeper.guarded.member.url != wanted.members[number].url
        ]
        for member in wanted.members.values():
            self._keep(member, (opened or {}).get(member.number))
        self._by_number = [self._keepers[number].guarded for number in sorted(self._keepers)]
        await _stop(gone)

    def _keep(self, member: Member, opened: Shard | None) -> None:
        if (keeper := self._keepers.get(member.number)) is not None:
            keeper.change(member)
        else:
            self._keepers[member.number] = Keeper(
                member, self._open_shard, self._clock, self._chance, deadline=self._deadline, opened=opened
            )

    async def _follow(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_EVERY * self._chance.uniform(0.8, 1.2))
            try:
                async with self.changing:
                    await self.refresh()
            except Unavailable as error:
                logger.debug("the shard map cannot be read, the last one holds: %s", error)
            except Exception:
                logger.exception("the shard map cannot be followed, the last one holds")

    def _repair(self, shard: GuardedShard, lacking: Sequence[Notice]) -> None:
        """Tell a shard what it missed, behind the caller's back; one telling at a time."""
        if lacking and shard.shard not in self._repairs and not self._closed:
            task = self._repairs[shard.shard] = asyncio.create_task(_tell(shard, lacking))
            task.add_done_callback(lambda _: self._repairs.pop(shard.shard, None))

    async def close(self) -> None:
        """Stop following, stop probing, close every shard. May be repeated."""
        self._closed = True
        tasks = [*self._repairs.values(), *([self._following] if self._following else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        gone, self._keepers, self._by_number = list(self._keepers.values()), {}, ()
        await _stop(gone)


async def _tell(shard: GuardedShard, lacking: Sequence[Notice]) -> None:
    try:
        await shard.tell(lacking)
    except Unavailable as error:
        logger.debug("told nothing for now: %s", error)


async def _stop(keepers: Iterable[Keeper]) -> None:
    for end in await asyncio.gather(*(keeper.stop() for keeper in keepers), return_exceptions=True):
        if isinstance(end, BaseException):
            logger.warning("closing a shard: %s", end)


def closed() -> StoreUnavailable:
    return StoreUnavailable("the store is closed")


def none_left(message: str, missing: Sequence[ShardId]) -> StoreUnavailable:
    """Nothing is left to ask; names those that do not answer."""
    named = f" (not answering: {', '.join(map(str, missing))})" if missing else ""
    return StoreUnavailable(f"{message}{named}; retry in a moment", retry_after=RETRY_AFTER_SECONDS)
