"""Whether a file is worth taking to, or from, the object store itself, past the server."""

import os
import random
from datetime import timedelta

from penstock.client.calls import Reply
from penstock.model.clock import Clock
from penstock.model.ids import ShardId
from penstock.model.sdk_keys import SHARDS_HEADER, new_sdk_key, read_shards

WORTH_BYTES = 64 * 1024
"""Below this the extra call costs more than the server's passing on of the bytes."""
AGAIN_AFTER = timedelta(minutes=5)


class Direct:
    """Says no for a while after it was of no use: a store that cannot be reached costs a timeout each time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._again_at: float | None = None

    def worth(self, size: int) -> bool:
        return size >= WORTH_BYTES and (self._again_at is None or self._clock.monotonic() >= self._again_at)

    def of_no_use(self) -> None:
        """The server knows no such way, or what it named cannot be reached."""
        self._again_at = self._clock.monotonic() + AGAIN_AFTER.total_seconds()


URL_VARIABLE = "PENSTOCK_URL"

_home: tuple[str, str] | None = None


def belong_to(url: str, key: str) -> None:
    """From now on clients without an address talk to this server, and those without a key show it this one."""
    global _home
    os.environ[URL_VARIABLE] = url
    _home = url.rstrip("/"), key


def in_executor() -> bool:
    """Whether this process runs handlers."""
    return _home is not None


def home_key(url: str) -> str:
    """The key to show at an address where no other was given: this executor's, at its own server and nowhere else."""
    return _home[1] if _home is not None and url.rstrip("/") == _home[0] else ""


class ShardPlacement:
    """Of one client. A server with a single shard tells nothing, and any key will do for it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._weights: dict[ShardId, float] = {}

    def new_key(self) -> str:
        """A key that nobody else has, on one of the shards, by weight."""
        return new_sdk_key(self._choose())

    def learn(self, reply: Reply) -> None:
        """Choose from what this answer says from now on, if it says anything."""
        told = reply.headers.get(SHARDS_HEADER.lower())
        if told is not None:
            self._weights = read_shards(told)

    def _choose(self) -> ShardId | None:
        weights = self._weights
        if not weights:
            return None
        (chosen,) = self._rng.choices([*weights], [*weights.values()])
        return chosen
