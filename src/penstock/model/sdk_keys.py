"""Idempotency keys that the SDK makes for jobs whose user gave none. Such a key names the shard it lives on.

So a job without a user's key may go to any shard, and a repeated request still finds the first one's job: the shard is
in the key, whichever server is asked and however the shard map has changed. The servers list the shards that take new
jobs; the client chooses one.

    penstock:2:6f1d…   lives on shard 2
    penstock:any:6f1d… the client knows no shards yet: where there are several, it gets the list and chooses
"""

import re
import uuid
from collections.abc import Mapping

from msgspec import Struct

from penstock.model.ids import SHARDS_MAX, ShardId

SHARDS_HEADER = "Penstock-Shards"
"""In answers to submits under such keys: the shards that take new jobs, as `0=1 2=0.5`, with their weights."""

REPEATED_HEADER = "Penstock-Repeated"
"""In such submits: an earlier one under the same key may have been carried out."""

_KEY = re.compile(r"penstock:(any|[0-9]{1,4}):[0-9a-f]{32}")
_SHARD = re.compile(r"([0-9]{1,4})=([0-9]{1,9}(?:[.][0-9]{1,9})?(?:e[+-][0-9]{1,2})?)")


class SdkKey(Struct, frozen=True):
    """A parsed key. `home` is the shard that it lives on; None: any shard."""

    home: ShardId | None


def new_sdk_key(home: ShardId | None) -> str:
    """A new random key."""
    return f"penstock:{'any' if home is None else home}:{uuid.uuid4().hex}"


def read_sdk_key(key: str) -> SdkKey | None:
    """A key of the SDK, parsed; None for a user's own key."""
    found = _KEY.fullmatch(key)
    if found is None or (found[1] != "any" and int(found[1]) >= SHARDS_MAX):
        return None
    return SdkKey(None if found[1] == "any" else ShardId(int(found[1])))


def write_shards(weights: Mapping[ShardId, float]) -> str:
    """The value of the header."""
    return " ".join(f"{number}={weight:g}" for number, weight in weights.items())


def read_shards(text: str) -> dict[ShardId, float]:
    """The shards of the header; entries that cannot be read are left out."""
    found = (_SHARD.fullmatch(word) for word in text.split())
    return {ShardId(int(one[1])): float(one[2]) for one in found if one is not None and float(one[2]) > 0}
