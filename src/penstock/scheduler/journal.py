"""The journal's service: numbers the entries of a shard, so that counts and history follow even without readers."""

from datetime import timedelta

from penstock.store import Shard

NUMBER_INTERVAL = timedelta(seconds=1)


class JournalService:
    """One step numbers what has become visible. Readers do so too, just before they read."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    async def step(self) -> timedelta:
        await self._shard.number_entries()
        return NUMBER_INTERVAL
