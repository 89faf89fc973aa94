"""The operator's operations on shards: list, add, weigh, drain, remove; and which shard a key of the SDK may name."""

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeVar

from msgspec import Struct, UnsetType

from penstock.model.errors import ChooseShard, Conflict, MapChanged, StoreUnavailable, Unavailable
from penstock.model.ids import ShardId
from penstock.model.job import Retention
from penstock.model.lifecycle import State
from penstock.model.sdk_keys import SdkKey, read_sdk_key, write_shards
from penstock.model.shards import ShardState, redacted, without_secrets
from penstock.model.wire.shards import ShardChange, ShardItem, ShardRequest
from penstock.orchestrator import ShardedStore
from penstock.orchestrator.admin import jobs_by_state
from penstock.orchestrator.shard import GuardedShard
from penstock.store import Shard, Store
from penstock.store.answers import gather_answers

T = TypeVar("T")


PATIENCE = timedelta(seconds=2)
"""How long slower shards are waited for, once the first has answered."""


async def ask_shards(
    store: Store, call: Callable[[Shard], Awaitable[T]]
) -> tuple[builtins.list[T], tuple[ShardId, ...]]:
    """The answers of the shards that give one soon, and which do not; StoreUnavailable when none does."""
    shards = store.shards()
    answers = await gather_answers([call(shard) for shard in shards], PATIENCE)
    found = [answer for answer in answers if not isinstance(answer, Unavailable)]
    away = {one.shard for one, answer in zip(shards, answers, strict=True) if isinstance(answer, Unavailable)}
    if not found:
        raise StoreUnavailable("no shard answers; retry in a moment")
    return found, tuple(sorted(away | set(store.unavailable())))


class ShardView(Struct, frozen=True):
    """A shard as this process sees it: whether it answers, and the calls and failures since the start."""

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
            return await asyncio.gather(*map(_item, self._store.directory.all))
        return [await _only(shard) for shard in self._store.shards()]

    async def views(self) -> "builtins.list[ShardView]":
        """Every shard that its operator has not set down. Does not call a shard that is known to be down."""
        if isinstance(self._store, ShardedStore):
            used = [shard for shard in self._store.directory.all if shard.in_use]
            return [_view(shard) for shard in used]
        return [ShardView(shard.shard, await _answers(shard)) for shard in self._store.shards()]

    async def add(self, request: ShardRequest) -> ShardItem:
        """Add a shard to the map; every process uses it within about a second."""
        store = self._many()
        added = await store.admin.add(request.url, request.number, request.weight, request.state, keyed=request.keyed)
        return await self._get(store, added.number)

    async def change(self, number: ShardId, change: ShardChange) -> ShardItem:
        """Change the fields that are given."""
        store = self._many()
        await store.admin.change(number, _said(change.weight), _said(change.state), keyed=_said(change.keyed))
        return await self._get(store, number)

    async def remove(self, number: ShardId, *, force: bool = False) -> None:
        """Remove a drained shard from the map. Conflict while it has jobs; with `force` only while it has open ones."""
        await self._many().admin.remove(number, force=force)

    async def forget_former_rings(self, keep: Retention) -> None:
        """Stop looking for keys on the shards of former rings once no job is left there from that time."""
        if isinstance(self._store, ShardedStore):
            with suppress(Unavailable, Conflict):
                await self._store.admin.forget_former_rings(keep.longest)

    def _many(self) -> ShardedStore:
        if isinstance(self._store, ShardedStore):
            return self._store
        raise Conflict(
            "this server keeps its jobs in one file, so there are no shards to change; "
            "set store.shards to run on several databases"
        )

    async def _get(self, store: ShardedStore, number: ShardId) -> ShardItem:
        shard = store.directory.find(number)
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


class SdkPlacement:
    """Decides whether a submit stays on the shard that its SDK key names. A key of the user's own names none."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @contextmanager
    def choosing(self, key: str | None, *, repeated: bool) -> Iterator[None]:
        """Submit the job within. ChooseShard if nothing was written and the client may name another shard.

        `repeated`: an earlier request under this key may have been carried out, so the key stays on its shard.
        """
        named = None if key is None else read_sdk_key(key)
        if named is None or repeated:
            yield
            return
        self._check(named)
        try:
            yield
        except StoreUnavailable as error:
            others = {number: weight for number, weight in (self._store.takers() or {}).items() if number != named.home}
            if not others or not (error.unsent or isinstance(error, MapChanged)):
                raise
            raise _choose(others, error.message) from error

    def shards(self, key: str | None) -> Mapping[ShardId, float] | None:
        """The shards that the client's next keys may name, by weight; None if they need not name one."""
        return self._store.takers() if key is not None and read_sdk_key(key) is not None else None

    def _check(self, named: SdkKey) -> None:
        takers = self._store.takers()
        if takers and (named.home is None or named.home not in takers):
            reason = "there are several shards" if named.home is None else f"shard {named.home} takes no new jobs now"
            raise _choose(takers, reason)


def _choose(takers: Mapping[ShardId, float], why: str) -> ChooseShard:
    return ChooseShard(f"{why}; name one of {', '.join(map(str, takers))} in the key", shards=write_shards(takers))
