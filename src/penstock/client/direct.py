"""Shortcuts past the server's own choice: files straight to and from the object store, and the shard of a submit."""

import random
from datetime import timedelta

from penstock.client.calls import Reply
from penstock.model.clock import Clock
from penstock.model.ids import ShardId
from penstock.model.sdk_keys import SHARDS_HEADER, new_sdk_key, read_shards

WORTH_BYTES = 64 * 1024
"""Below this size the extra call costs more than sending the bytes through the server."""
AGAIN_AFTER = timedelta(minutes=5)


class Direct:
    """Whether to transfer a file directly. Off for AGAIN_AFTER once a transfer failed: each failure costs a timeout."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._again_at: float | None = None

    def worth(self, size: int) -> bool:
        return size >= WORTH_BYTES and (self._again_at is None or self._clock.monotonic() >= self._again_at)

    def of_no_use(self) -> None:
        """Record that the server offers no direct transfers, or that its object store cannot be reached."""
        self._again_at = self._clock.monotonic() + AGAIN_AFTER.total_seconds()


class ShardPlacement:
    """Chooses the shards of one client's submits. A server with a single shard names none: any key will do."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._weights: dict[ShardId, float] = {}

    def new_key(self) -> str:
        """A unique idempotency key that places its jobs on one of the shards, chosen by weight."""
        return new_sdk_key(self._choose())

    def learn(self, reply: Reply) -> None:
        """Take over the shards and weights that an answer names, if it names any."""
        told = reply.headers.get(SHARDS_HEADER.lower())
        if told is not None:
            self._weights = read_shards(told)

    def _choose(self) -> ShardId | None:
        weights = self._weights
        if not weights:
            return None
        (chosen,) = self._rng.choices([*weights], [*weights.values()])
        return chosen
