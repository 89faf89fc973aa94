"""Shards as their operator sees them: how each is, and adding, weighing, draining and removing them."""

import asyncio
import builtins
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct, UnsetType

from penstock.model.errors import Conflict, Unavailable
from penstock.model.ids import ShardId
from penstock.model.job import Retention
from penstock.model.lifecycle import State
from penstock.model.shard_wire import ShardChange, ShardItem, ShardRequest
from penstock.model.shards import ShardState, redacted, without_secrets
from penstock.orchestrator import ShardedStore
from penstock.orchestrator.guarded import GuardedShard
from penstock.orchestrator.mapping import jobs_by_state
from penstock.store import Shard, Store

T = TypeVar("T")


class ShardView(Struct, frozen=True):
    """A shard as this process sees it: whether it answers, and its calls and failures since the start."""

    number: ShardId
    up: bool
    calls: int = 0
    failures: int = 0


class Shards:
    """The shards behind the engine's store. One store without an orchestrator is one shard, and stays so."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> list[ShardItem]:
        """Every shard of the map, by number."""
        if isinstance(self._store, ShardedStore):
            return await asyncio.gather(*map(_item, self._store.roster.all))
        return [await _only(shard) for shard in self._store.shards()]

    async def views(self) -> "builtins.list[ShardView]":
        """Every shard that its operator lets be asked. Asks nothing of a shard that is known to be down."""
        if isinstance(self._store, ShardedStore):
            used = [shard for shard in self._store.roster.all if shard.in_use]
            return [_view(shard) for shard in used]
        return [ShardView(shard.shard, await _answers(shard)) for shard in self._store.shards()]

    async def add(self, request: ShardRequest) -> ShardItem:
        """Take a shard into the map; every process uses it within about a second."""
        store = self._many()
        added = await store.mapmaker.add(
            request.url, request.number, request.weight, request.state, keyed=request.keyed
        )
        return await self._get(store, added.number)

    async def change(self, number: ShardId, change: ShardChange) -> ShardItem:
        """Change what is said and leave the rest."""
        store = self._many()
        await store.mapmaker.change(number, _said(change.weight), _said(change.state), keyed=_said(change.keyed))
        return await self._get(store, number)

    async def remove(self, number: ShardId, *, force: bool = False) -> None:
        """Take a drained shard out of the map. Conflict while jobs would be missed; `force` gives up ended ones."""
        await self._many().mapmaker.remove(number, force=force)

    async def forget_former_rings(self, keep: Retention) -> None:
        """Stop asking where keys lived before the ring changed, once no job is left there from that time."""
        if isinstance(self._store, ShardedStore):
            with suppress(Unavailable, Conflict):
                await self._store.mapmaker.forget_former_rings(keep.longest)

    def _many(self) -> ShardedStore:
        if isinstance(self._store, ShardedStore):
            return self._store
        raise Conflict(
            "this server keeps its jobs in one file, so there are no shards to change; "
            "set store.shards to run on several databases"
        )

    async def _get(self, store: ShardedStore, number: ShardId) -> ShardItem:
        shard = store.roster.find(number)
        if shard is None:
            raise Conflict(f"shard {number} was removed meanwhile")
        return await _item(shard)


def _view(shard: GuardedShard) -> ShardView:
    return ShardView(shard.shard, shard.healthy, shard.breaker.calls, shard.breaker.failures)


async def _answers(shard: Shard) -> bool:
    try:
        await shard.due_summary()
    except Unavailable:
        return False
    return True


async def _item(shard: GuardedShard) -> ShardItem:
    member, health = shard.member, shard.breaker.health
    return ShardItem(
        number=member.number,
        url=redacted(member.url),
        weight=member.weight,
        state=member.state,
        keyed=member.keyed,
        well=shard.healthy,
        since=health.since,
        reason=None if shard.healthy else _reason(shard),
        jobs=await _jobs(shard) if shard.healthy else None,
    )


async def _only(shard: Shard) -> ShardItem:
    return ShardItem(
        number=shard.shard,
        url=None,
        weight=1.0,
        state=ShardState.ACTIVE,
        keyed=True,
        well=True,
        jobs=await _jobs(shard),
    )


def _reason(shard: GuardedShard) -> str:
    if not shard.in_use:
        return "its operator set it down"
    return without_secrets(shard.breaker.reason or "it has not been opened yet", shard.member.url)


async def _jobs(shard: Shard) -> dict[State, int] | None:
    """Jobs by state, without zeros; None when they cannot be counted now."""
    try:
        return await jobs_by_state(shard)
    except Unavailable:
        return None


def _said(value: T | UnsetType) -> T | None:
    return None if isinstance(value, UnsetType) else value
