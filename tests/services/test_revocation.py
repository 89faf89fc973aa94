"""Revoked keys over several shards: refused wherever one of them knows, and told to those that were away."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.errors import NotFound, Unauthorized
from penstock.model.keys import KeyId, KeyScope
from penstock.model.notices import NoticeKind
from penstock.model.wire.keys import KeyRequest, MadeKey, RotateRequest
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from tests.services.faulty_shards import FaultyShards

BOTH = range(2)


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[FaultyShards]:
    async with FaultyShards(tmp_path) as case:
        yield case


@pytest.fixture
async def store(case: FaultyShards) -> ShardedStore:
    return await case.orchestrator(BOTH)


@pytest.fixture
def engine(case: FaultyShards, store: ShardedStore, tmp_path: Path) -> Engine:
    return process(case, store, tmp_path)


def process(case: FaultyShards, store: ShardedStore, folder: Path) -> Engine:
    objects = FolderObjects(folder / "objects", case.clock)
    return Engine(store, MemoryBroker(), objects, Settings(), case.clock, random.Random(7))


async def make(engine: Engine) -> MadeKey:
    return await engine.keys.create(KeyRequest(name="ci", scopes=(KeyScope.JOBS_READ,)))


async def lets_in(engine: Engine, key: MadeKey) -> bool:
    """Whether a process that reads the store now admits the key."""
    engine.catalog.forget()
    try:
        return await engine.keys.admit(f"Bearer {key.key}", [KeyScope.JOBS_READ]) is not None
    except Unauthorized:
        return False


async def holds_as_revoked(case: FaultyShards, number: int, key: MadeKey) -> bool:
    notices = await case.shard(number).inside.notices()
    return any(one.about == (NoticeKind.KEY, key.id) and one.value is None for one in notices)


async def test_a_revocation_that_reaches_every_shard_names_none(case: FaultyShards, engine: Engine) -> None:
    key = await make(engine)
    assert await engine.keys.revoke(KeyId(key.id)) == ()
    assert [await holds_as_revoked(case, number, key) for number in BOTH] == [True, True]
    with pytest.raises(NotFound):
        await engine.keys.revoke(KeyId("k0000000"))


async def test_a_revocation_names_the_shards_that_it_did_not_reach_until_they_are_told(
    case: FaultyShards, store: ShardedStore, engine: Engine
) -> None:
    key = await make(engine)
    await case.falls(store, 1)
    assert await engine.keys.revoke(KeyId(key.id)) == (1,)
    assert await engine.keys.revoke(KeyId(key.id)) == (1,)
    assert not await holds_as_revoked(case, 1, key)
    await case.heals(store, 1)
    await store.directory.catch_up()
    assert await engine.keys.revoke(KeyId(key.id)) == ()
    assert await holds_as_revoked(case, 1, key)


async def test_a_key_stays_revoked_when_only_the_shard_is_up_that_missed_it(
    case: FaultyShards, store: ShardedStore, engine: Engine
) -> None:
    key = await make(engine)
    await case.falls(store, 1)
    await engine.keys.revoke(KeyId(key.id))
    await case.falls(store, 0)
    await case.heals(store, 1)
    assert not await lets_in(engine, key)
    # And it is told, so that a process that starts now knows it too.
    await store.directory.catch_up()
    assert await holds_as_revoked(case, 1, key)


async def test_an_old_key_expires_after_its_grace_when_only_the_shard_is_up_that_missed_its_rotation(
    case: FaultyShards, store: ShardedStore, engine: Engine
) -> None:
    key = await make(engine)
    await case.falls(store, 1)
    heir = await engine.keys.rotate(KeyId(key.id), RotateRequest(grace_seconds=0))
    await case.falls(store, 0)
    await case.heals(store, 1)
    assert not await lets_in(engine, key)
    assert await lets_in(engine, heir)


async def test_a_revocation_counts_before_whatever_a_shard_that_missed_it_was_told_later(
    case: FaultyShards, store: ShardedStore, engine: Engine, tmp_path: Path
) -> None:
    key = await make(engine)
    await case.falls(store, 1)
    await engine.keys.revoke(KeyId(key.id))
    await case.falls(store, 0)
    # A process that was not there, and reaches only the shard that missed it.
    case.shard(1).behaviour = case.shard(1).behaviour.WELL
    alone = await case.orchestrator([1])
    stranger = process(case, alone, tmp_path)
    await stranger.keys.rotate(KeyId(key.id), RotateRequest())
    await case.heals(store, 0)
    await case.heals(store, 1)
    assert not await lets_in(engine, key)
    await store.directory.catch_up()
    assert not await lets_in(stranger, key)
    assert [await holds_as_revoked(case, number, key) for number in BOTH] == [True, True]
