"""Changing the shard map while everything runs: a change is checked, told to the shards, and done here at once."""

from collections import Counter
from collections.abc import Mapping

from penstock.model.errors import Conflict, Invalid, NotFound, PenstockError, StoreUnavailable
from penstock.model.ids import SHARDS_MAX, ShardId
from penstock.model.lifecycle import TERMINAL, State
from penstock.model.shards import (
    Member,
    ShardMap,
    ShardState,
    Told,
    home_of,
    merged,
    numbers_used,
    said_about,
    without_secrets,
)
from penstock.orchestrator.guarded import GuardedShard
from penstock.orchestrator.keeper import OpenShard
from penstock.orchestrator.roster import Roster
from penstock.orchestrator.spread import answered
from penstock.store.seam import Shard, schedule_key

SCHEDULES_AT_ONCE = 1000


class Mapmaker:
    """The only writer of notices about shards."""

    def __init__(self, roster: Roster, open_shard: OpenShard) -> None:
        self._roster = roster
        self._open_shard = open_shard

    async def add(self, url: str, number: int | None, weight: float, state: ShardState, *, keyed: bool) -> Member:
        """Take a shard into the map, once it has been opened here. Conflict when its number or URL is taken."""
        async with self._roster.changing:
            await self._roster.refresh()
            member = Member(self._number(number), url, weight, state, keyed)
            self._check_new(member)
            await self._check_ring(self._roster.map.with_(member))
            shard = await self._opened(member)
            try:
                await self._roster.tell({member.number: Told(url, weight, state, keyed)})
                await shard.tell(list((await self._roster.notices()).values()))
            except BaseException:
                await shard.close()
                raise
            await self._roster.apply(self._roster.map.with_(member), {member.number: shard})
            return member

    async def change(
        self, number: ShardId, weight: float | None, state: ShardState | None, *, keyed: bool | None
    ) -> Member:
        """Change what is said (None: leave it) of a shard. Conflict when keys of schedules would move."""
        async with self._roster.changing:
            await self._roster.refresh()
            member = self._find(number).member.changed(weight, state, keyed=keyed)
            wanted = self._roster.map.with_(member)
            await self._check_ring(wanted)
            before = said_about(number, self._roster.about_shards) or Told()
            await self._roster.tell({number: before.then(weight, state, keyed=keyed)})
            await self._roster.apply(wanted)
            return member

    async def remove(self, number: ShardId, *, force: bool) -> None:
        """Take a drained shard out of the map. Conflict while it is in use or has jobs that would be missed."""
        async with self._roster.changing:
            await self._roster.refresh()
            shard = self._find(number)
            self._check_leaving(shard.member, force=force)
            if not [one for one in self._roster.well if one is not shard]:
                raise StoreUnavailable(f"no shard but {number} answers, so nobody would know that it left; retry later")
            if shard.in_use:
                _check_empty(number, await jobs_by_state(shard), force=force)
            await self._roster.tell({number: None})
            await self._roster.apply(merged(self._roster.settled, self._roster.about_shards))

    def _number(self, wanted: int | None) -> ShardId:
        """The number asked for, or the first that no shard ever had: ids of jobs may still carry the others."""
        used = numbers_used(self._roster.settled, self._roster.about_shards)
        number = max(used, default=-1) + 1 if wanted is None else wanted
        if number >= SHARDS_MAX:
            raise Invalid(f"shard {number}: numbers go from 0 to {SHARDS_MAX - 1}; say which to use")
        return ShardId(number)

    def _check_new(self, member: Member) -> None:
        if self._roster.find(member.number) is not None:
            raise Conflict(f"there is a shard {member.number} already; choose another number, or leave it out")
        for one in self._roster.all:
            if one.member.url == member.url:
                raise Conflict(f"shard {one.shard} is at that URL already")

    def _find(self, number: ShardId) -> GuardedShard:
        shard = self._roster.find(number)
        if shard is None:
            known = ", ".join(str(one.shard) for one in self._roster.all)
            raise NotFound(f"there is no shard {number}; there are {known}")
        return shard

    def _check_leaving(self, member: Member, *, force: bool) -> None:
        number, lost = member.number, member.state is ShardState.DOWN
        if lost and not force:
            raise Conflict(
                f"shard {number} is set down, so nobody can tell what jobs it has; set it draining to look, "
                "or use force to give up whatever it holds"
            )
        if member.keyed and self._roster.map.ring == (number,):
            raise Conflict(f"shard {number} is the only keyed one; let keys live elsewhere first")
        if member.keyed and not lost:
            raise Conflict(
                f"shard {number} is keyed: keys and schedules live there; "
                f"take it out of the ring first: penstock shards set {number} --no-keyed"
            )
        if member.state is ShardState.ACTIVE:
            raise Conflict(f"shard {number} still takes new jobs; drain it first: penstock shards drain {number}")
        if len(self._roster.all) == 1:
            raise Conflict(f"shard {number} is the only one; add another first")

    async def _check_ring(self, wanted: ShardMap) -> None:
        """Refuse a ring in which a schedule would not be found any more."""
        before, after = self._roster.map.ring, wanted.ring
        if before == after:
            return
        if not after:
            raise Conflict("one shard at least must be keyed: keys and schedules have to live somewhere")
        if unread := set(before) & set(self._roster.missing()):
            raise StoreUnavailable(
                f"shard {min(unread)} does not answer, so its schedules cannot be looked at; change the ring later"
            )
        moving = sorted(
            name
            for shard, names in (await answered(self._roster.well, _names)).items()
            for name in names
            if home_of(schedule_key(name), after) != shard.shard
        )
        if moving:
            raise Conflict(
                f"{len(moving)} schedules would change their place, {moving[0]!r} among them, and not be found there; "
                "delete them first and make them again afterwards"
            )

    async def _opened(self, member: Member) -> Shard:
        try:
            return await self._open_shard(member.number, member.url)
        except PenstockError as error:
            reason = without_secrets(error.message, member.url)
            raise Conflict(f"shard {member.number} cannot be opened there, so it was not added: {reason}") from None


async def jobs_by_state(shard: Shard) -> dict[State, int]:
    """How many jobs of each state a shard has; without zeros."""
    found: Counter[State] = Counter()
    for count in await shard.counts():
        found[count.state] += count.jobs
    return {state: jobs for state, jobs in found.items() if jobs}


def _check_empty(number: ShardId, jobs: Mapping[State, int], *, force: bool) -> None:
    waiting = sum(count for state, count in jobs.items() if state not in TERMINAL)
    if waiting:
        raise Conflict(f"shard {number} has {waiting} jobs that have not ended; let them end or cancel them first")
    if jobs and not force:
        raise Conflict(
            f"shard {number} keeps {sum(jobs.values())} ended jobs that nobody could read any more; wait until their "
            "retention is over, or use force to give them up"
        )


async def _names(shard: GuardedShard) -> list[str]:
    names: list[str] = []
    after = None
    while found := await shard.schedules(after, SCHEDULES_AT_ONCE):
        names += [one.name for one in found]
        after = names[-1]
    return names
