"""Changes of the shard map at run time: each is checked, stored on the shards as a notice, and applied here."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from penstock.model.clock import Clock
from penstock.model.errors import Conflict, Invalid, NotFound, PenstockError, StoreUnavailable
from penstock.model.ids import SHARDS_MAX, ShardId
from penstock.model.lifecycle import TERMINAL, State
from penstock.model.shards import (
    FormerRing,
    Ring,
    ShardMember,
    ShardNotice,
    ShardState,
    merged,
    numbers_used,
    said_about,
    shard_for_key,
    without_secrets,
)
from penstock.orchestrator.directory import ShardDirectory
from penstock.orchestrator.fan_out import ask_all
from penstock.orchestrator.shard import GuardedShard
from penstock.orchestrator.supervisor import OpenShard
from penstock.store.seam import Shard, schedule_key

SCHEDULES_AT_ONCE = 1000
CHECK_INTERVAL = timedelta(hours=1)
"""How often former rings are checked."""


class ShardAdmin:
    """The only writer of notices about shards."""

    def __init__(self, directory: ShardDirectory, open_shard: OpenShard, clock: Clock) -> None:
        self._directory = directory
        self._open_shard = open_shard
        self._clock = clock
        self._looked_at = float("-inf")

    async def add(self, url: str, number: int | None, weight: float, state: ShardState, *, keyed: bool) -> ShardMember:
        """Take a shard into the map, once it has been opened here. Conflict when its number or URL is taken."""
        async with self._directory.changing:
            await self._directory.refresh()
            member = ShardMember(self._number(number), url, weight, state, keyed=False)
            self._check_new(member)
            ring = self._ring_with(member.number, keyed=keyed)
            await self._check_ring(ring)
            shard = await self._open(member)
            try:
                await shard.admit(jobs=True)
                await self._directory.put_shard_notices({member.number: ShardNotice(url, weight, state)})
                await shard.put_notices(list((await self._directory.notices()).values()))
            except BaseException:
                await shard.close()
                raise
            await self._directory.apply(self._directory.map.with_(member), {member.number: shard})
            await self._change_ring(ring)
            return self._directory.map.members[member.number]

    async def change(
        self, number: ShardId, weight: float | None, state: ShardState | None, *, keyed: bool | None
    ) -> ShardMember:
        """Change a shard's weight, state or ring membership (None: unchanged). Conflict when schedules would move."""
        async with self._directory.changing:
            await self._directory.refresh()
            shard = self._find(number)
            ring = self._ring_with(number, keyed=shard.member.keyed if keyed is None else keyed)
            await self._check_ring(ring)
            if shard.healthy and (state is ShardState.ACTIVE or keyed):
                # A removal that failed halfway may have left it closed.
                await shard.admit(jobs=True)
            if weight is not None or state is not None:
                before = said_about(number, self._directory.about_shards) or ShardNotice()
                await self._directory.put_shard_notices({number: before.then(weight, state)})
                await self._directory.apply(self._directory.map.with_(shard.member.changed(weight, state)))
            await self._change_ring(ring)
            return self._directory.map.members[number]

    async def remove(self, number: ShardId, *, force: bool) -> None:
        """Take a drained shard out of the map. Conflict while it is in use or has jobs that would be missed.

        It is closed before it is checked, so a process with an older map can submit nothing there any more.
        """
        async with self._directory.changing:
            await self._directory.refresh()
            shard = self._find(number)
            self._check_leaving(shard.member, force=force)
            if not [one for one in self._directory.healthy if one is not shard]:
                raise StoreUnavailable(f"no shard but {number} answers, so nobody would know that it left; retry later")
            if shard.in_use:
                await _close(shard, force=force)
            await self._change_ring(self._ring_with(number, keyed=False))
            await self._directory.put_shard_notices({number: None})
            await self._directory.apply(merged(self._directory.configured, self._directory.about_shards))

    async def forget_former_rings(self, keep: timedelta) -> None:
        """Forget the former rings whose shards keep no job any more that was submitted under them.

        Checked at most every CHECK_INTERVAL, and only after `keep`, the longest retention, since the ring changed.
        """
        since = self._clock.monotonic() - self._looked_at
        if not self._directory.map.ring.before or since < CHECK_INTERVAL.total_seconds():
            return
        self._looked_at = self._clock.monotonic()
        async with self._directory.changing:
            now = await self._directory.now()
            over = [one for one in self._directory.map.ring.before if now - one.left_at > keep]
            empty = [one for one in over if not await self._has_keys_of(one)]
            if empty:
                await self._directory.put_ring(self._directory.map.ring.without(empty))
                await self._directory.apply(merged(self._directory.configured, self._directory.about_shards))

    async def _has_keys_of(self, former: FormerRing) -> bool:
        """Whether a shard of a former ring keeps keyed jobs from then; Unavailable when one does not answer."""
        shards = [shard for number in former.shards if (shard := self._directory.find(number)) is not None]
        return any([await shard.has_keys_before(former.left_at) for shard in shards])

    def _ring_with(self, number: ShardId, *, keyed: bool) -> tuple[ShardId, ...]:
        """The shards of the ring, with this one or without it."""
        others = {one for one in self._directory.map.ring.shards if one != number}
        return tuple(sorted(others | {number} if keyed else others))

    async def _change_ring(self, shards: tuple[ShardId, ...]) -> None:
        """Make these shards the ring. Keys that move are also looked up on their former shards.

        Schedules are checked again once every shard knows the ring: when one was created meanwhile that would move,
        the former ring is restored and Conflict raised.
        """
        before = self._directory.map.ring
        if before.shards == shards:
            return
        await self._put_ring(before.changed(shards, await self._directory.now()))
        if moving := await self._find_moving(shards):
            await self._put_ring(self._directory.map.ring.changed(before.shards, await self._directory.now()))
            raise _would_move(moving)

    async def _put_ring(self, ring: Ring) -> None:
        if not await self._directory.put_ring(ring):
            raise Conflict("the ring was changed by another process at the same time; look, and try again")
        await self._directory.apply(merged(self._directory.configured, self._directory.about_shards))

    def _number(self, wanted: int | None) -> ShardId:
        """The number asked for, or the first that no shard ever had: job ids may still contain the others."""
        used = numbers_used(self._directory.configured, self._directory.about_shards)
        number = max(used, default=-1) + 1 if wanted is None else wanted
        if number >= SHARDS_MAX:
            raise Invalid(f"shard {number}: numbers go from 0 to {SHARDS_MAX - 1}; say which to use")
        return ShardId(number)

    def _check_new(self, member: ShardMember) -> None:
        if self._directory.find(member.number) is not None:
            raise Conflict(f"there is a shard {member.number} already; choose another number, or leave it out")
        for one in self._directory.all:
            if one.member.url == member.url:
                raise Conflict(f"shard {one.shard} is at that URL already")

    def _find(self, number: ShardId) -> GuardedShard:
        shard = self._directory.find(number)
        if shard is None:
            known = ", ".join(str(one.shard) for one in self._directory.all)
            raise NotFound(f"there is no shard {number}; there are {known}")
        return shard

    def _check_leaving(self, member: ShardMember, *, force: bool) -> None:
        number, lost = member.number, member.state is ShardState.DOWN
        if lost and not force:
            raise Conflict(
                f"shard {number} is set down, so nobody can tell what jobs it has; set it draining to look, "
                "or use force to give up whatever it holds"
            )
        if member.keyed and self._directory.map.ring.shards == (number,):
            raise Conflict(f"shard {number} is the only keyed one; let keys live elsewhere first")
        if member.keyed and not lost:
            raise Conflict(
                f"shard {number} is keyed: keys and schedules live there; "
                f"take it out of the ring first: penstock shards set {number} --no-keyed"
            )
        if member.state is ShardState.ACTIVE:
            raise Conflict(f"shard {number} still takes new jobs; drain it first: penstock shards drain {number}")
        if len(self._directory.all) == 1:
            raise Conflict(f"shard {number} is the only one; add another first")

    async def _check_ring(self, after: tuple[ShardId, ...]) -> None:
        """Refuse a ring by which a schedule would move to another shard, or that a shard could not be told."""
        ring = self._directory.map.ring
        if ring.shards == after:
            return
        if not after:
            raise Conflict("one shard at least must be keyed: keys and schedules have to live somewhere")
        if unread := {*ring.shards, *after} & set(self._directory.unavailable()):
            raise StoreUnavailable(
                f"shard {min(unread)} does not answer, so its schedules cannot be looked at; change the ring later"
            )
        if moving := await self._find_moving(after):
            raise _would_move(moving)

    async def _find_moving(self, after: tuple[ShardId, ...]) -> list[str]:
        """The names of the schedules that this ring would move to another shard."""
        found = await ask_all(self._directory.healthy, _names)
        return sorted(
            name
            for shard, names in found.items()
            for name in names
            if shard_for_key(schedule_key(name), after) != shard.shard
        )

    async def _open(self, member: ShardMember) -> Shard:
        try:
            return await self._open_shard(member.number, member.url)
        except PenstockError as error:
            reason = without_secrets(error.message, member.url)
            raise Conflict(f"shard {member.number} cannot be opened there, so it was not added: {reason}") from None


async def _close(shard: GuardedShard, *, force: bool) -> None:
    """Close a shard for new jobs and check that nothing is left on it; otherwise open it again and raise Conflict."""
    await shard.admit(jobs=False)
    try:
        _check_empty(shard.shard, await jobs_by_state(shard), force=force)
        if names := await shard.schedules(None, 1):
            raise Conflict(f"schedule {names[0].name!r} lives on shard {shard.shard}; delete it first")
    except BaseException:
        await shard.admit(jobs=True)
        raise


def _would_move(schedules: Sequence[str]) -> Conflict:
    return Conflict(
        f"{len(schedules)} schedules would change their place, {schedules[0]!r} among them, and not be found there; "
        "delete them first and make them again afterwards"
    )


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
