"""How far the relay of one subscription is on one shard, and the writes that keep it, under the fence of its role."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from penstock.events.circuit import Circuit
from penstock.model.clock import Clock
from penstock.model.journal import DeliveryRecord, Position, RelayState, RelayWrite
from penstock.model.subscriptions import Subscription
from penstock.store import Shard

SAVE_INTERVAL: Final = timedelta(seconds=1)
"""How often a position alone is written, so that unwanted events cost no writes."""


class RoleLost(Exception):
    """The role of a relay has passed to another process: nothing was written."""


class RelayProgress:
    """The state of a relay under one fence: as it is written, and as it is to be written."""

    def __init__(
        self, shard: Shard, clock: Clock, subscription: str, fence: int, state: RelayState, position: Position
    ) -> None:
        self.fence = fence
        self.position = position
        self.circuit = Circuit(state.failures, state.retry_at)
        self._shard = shard
        self._clock = clock
        self._subscription = subscription
        self._unsaved: RelayWrite | None = None
        self._records: list[DeliveryRecord] = []
        self._saved_at = float("-inf")

    def note(self, records: Sequence[DeliveryRecord]) -> None:
        """Keep records for the next write."""
        self._records += records

    async def save(self, write: RelayWrite) -> None:
        """Write it; RoleLost if the role has passed on. What cannot be written now is written before the next round."""
        write = replace(write, log=[*self._records, *write.log])
        is_urgent = has_deliveries(write) or write.state != self._state(write.state.position)
        self._records = []
        self._note(write)
        if is_urgent or self._clock.monotonic() - self._saved_at >= SAVE_INTERVAL.total_seconds():
            await self.flush()

    async def flush(self) -> None:
        """Write what is unwritten; RoleLost if the role has passed on."""
        if self._unsaved is None:
            return
        written = await self._shard.save_relay(self._subscription, self.fence, self._unsaved)
        self._unsaved = None
        self._saved_at = self._clock.monotonic()
        if not written:
            raise RoleLost

    async def flush_deliveries(self) -> None:
        """Write what could not be written; a position alone may wait. What is not written would be sent again."""
        if self._unsaved is not None and has_deliveries(self._unsaved):
            await self.flush()

    def _state(self, position: Position | None) -> RelayState:
        return RelayState(position=position, failures=self.circuit.failures, retry_at=self.circuit.probe_at)

    def _note(self, write: RelayWrite) -> None:
        if has_deliveries(write) or write.state != self._state(self.position):
            self._unsaved = write
        self.position = write.state.position or self.position
        self.circuit = Circuit(write.state.failures, write.state.retry_at)


def has_deliveries(write: RelayWrite) -> bool:
    """Whether it says more than where the relay is."""
    return bool(write.parked or write.unparked or write.log)


async def load_progress(shard: Shard, clock: Clock, subscription: Subscription, fence: int) -> RelayProgress:
    """Where the relay is; a new one begins at the journal's end as it was when the subscription was created."""
    state = await shard.relay_state(subscription.relay_name)
    position = state.position
    if position is not None:
        return RelayProgress(shard, clock, subscription.relay_name, fence, state, position)
    await shard.number_entries()
    begun = Position(await shard.find_number(subscription.created_at) + 1)
    progress = RelayProgress(shard, clock, subscription.relay_name, fence, state, Position(0))
    await progress.save(RelayWrite(state=replace(state, position=begun)))
    return progress
