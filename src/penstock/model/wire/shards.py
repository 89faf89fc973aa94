"""The bodies of requests and answers about shards. URLs are shown without their passwords."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from penstock.model.clock import Instant
from penstock.model.lifecycle import State
from penstock.model.names import whole
from penstock.model.shards import ShardNumber, ShardState, Weight

ShardUrl = Annotated[str, whole(r"[\x21-\x7e]+", max_length=2048)]


class ShardItem(Struct, frozen=True, kw_only=True):
    """One shard: what its operator wants of it, and how it is.

    `well` says whether it answers, `since` since when that is so, and `reason` why not. `jobs` are null where they
    cannot be counted now.
    """

    number: ShardNumber
    url: str | None
    weight: Weight
    state: ShardState
    keyed: bool
    well: bool
    since: Instant | None = None
    reason: str | None = None
    jobs: dict[State, int] | None = None


class ShardList(Struct, frozen=True):
    """Every shard of the map, by number."""

    shards: tuple[ShardItem, ...]


class ShardRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A shard to add. `number`: the next free one unless told otherwise.

    `keyed`: keys and schedules may live there too. A part of the keys moves there then; their jobs are still found.
    """

    url: ShardUrl
    number: ShardNumber | None = None
    weight: Weight = 1.0
    state: ShardState = ShardState.ACTIVE
    keyed: bool = False


class ShardChange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to change of a shard; what is left out stays as it is."""

    weight: Weight | UnsetType = UNSET
    state: ShardState | UnsetType = UNSET
    keyed: bool | UnsetType = UNSET
