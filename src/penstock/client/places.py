"""Which shards the server takes new jobs on, as its latest answer said; keys of jobs without one of their own."""

import random

from penstock.client.calls import Reply
from penstock.model.ids import ShardId
from penstock.model.sdk_keys import SHARDS_HEADER, new_sdk_key, read_shards


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
