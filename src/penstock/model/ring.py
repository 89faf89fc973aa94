"""The ring: the shards that idempotency keys, schedules and roles live on, and those that keys lived on before.

The ring is a notice of its own, and the instant at which it was told is its epoch. Every shard keeps the epoch it was
told, and refuses what was placed by another one: so no two processes ever give one key two homes.
"""

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b

from msgspec import Struct

from penstock.model.ids import ShardId
from penstock.model.timing import Instant


class FormerRing(Struct, frozen=True):
    """A ring as it was until `left_at`. Jobs submitted before then may have their keys there."""

    shards: tuple[ShardId, ...]
    left_at: Instant


class Ring(Struct, frozen=True):
    """The shards that keys live on, whatever their health, state or weight; `before`, newest first, where they did."""

    shards: tuple[ShardId, ...]
    before: tuple[FormerRing, ...] = ()

    def shard_for(self, key: str) -> ShardId:
        """The one shard that a key lives on."""
        return shard_for_key(key, self.shards)

    def former_shards(self, key: str) -> tuple[ShardId, ...]:
        """Where else the job of a key may be; nowhere for most keys."""
        if not self.before:
            return ()
        former = dict.fromkeys(shard_for_key(key, ring.shards) for ring in self.before)
        former.pop(self.shard_for(key), None)
        return tuple(former)

    def changed(self, shards: Sequence[ShardId], now: datetime) -> "Ring":
        """Other shards from now on; the present ones are remembered."""
        left = FormerRing(self.shards, now)
        others = [ring for ring in self.before if ring.shards != left.shards]
        return Ring(tuple(sorted(shards)), (left, *others))

    def without(self, forgotten: Sequence[FormerRing]) -> "Ring":
        """The same ring, with some former ones forgotten."""
        return Ring(self.shards, tuple(ring for ring in self.before if ring not in forgotten))


def shard_for_key(key: str, shards: Sequence[ShardId]) -> ShardId:
    """The shard that a key lives on: the highest hash of the two.

    A ring that grows moves keys to the new shard only; one that shrinks moves only those of the shard that left.
    """
    return max(shards, key=lambda number: (_score(key, number), number))


def _score(key: str, number: ShardId) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16, salt=number.to_bytes(16)).digest()
