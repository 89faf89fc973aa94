"""Deliveries of events by a function: every relay takes its turns until nothing is left to send, or time is over."""

import asyncio
import logging
import random
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct

from penstock.engine import Engine
from penstock.events.notifier import Notifier
from penstock.events.relay import ZERO, Relay, RelayContext
from penstock.events.sinks import make_notifier
from penstock.functions.budget import Budget
from penstock.model.errors import PenstockError, Unavailable
from penstock.model.journal import ParkedState
from penstock.model.subscriptions import Subscription, SubscriptionState
from penstock.store import Shard

logger = logging.getLogger("penstock.functions")

JOB_ITEM: Final = "job"
"""The sort key of the items of jobs. What relays write themselves is in others, and must not wake them again."""


class RelayReport(Struct, frozen=True):
    """What became of one relay. `next_due_at`: when its next attempt is due after one that failed, if there was any."""

    relay: str
    rounds: int
    is_finished: bool = False
    error: str | None = None
    next_due_at: datetime | None = None


class RelayRounds:
    """Steps the relays of active subscriptions. The notifier is made at its first use and kept."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._holder = f"function-{secrets.token_hex(8)}"
        self._notifier: Notifier | None = None

    async def run(self, budget: Budget) -> list[RelayReport]:
        """One report for each relay; none while there is no active subscription."""
        known = (await self._engine.subscriptions.read()).values()
        active = [one for one in known if one.state is SubscriptionState.ACTIVE]
        shards = [one for one in self._engine.store.shards() if one.keeps_events] if active else []
        return await asyncio.gather(*(self._run(shard, one, budget) for shard in shards for one in active))

    async def close(self) -> None:
        if self._notifier is not None:
            await self._notifier.close()

    async def _run(self, shard: Shard, subscription: Subscription, budget: Budget) -> RelayReport:
        relay = Relay(self._context(), shard, subscription)
        name, rounds, is_finished = f"{subscription.name} on shard {shard.shard}", 0, False
        try:
            while not (is_finished or budget.is_over):
                is_finished = await relay.step() > ZERO
                rounds += 1
            next_due_at = await _read_next_due(shard, subscription.relay_name)
        except PenstockError as error:
            return RelayReport(name, rounds, error=error.message)
        except Exception:
            logger.exception("relay %s failed", name)
            return RelayReport(name, rounds, error="it failed unexpectedly; the log says how")
        finally:
            await relay.resign()
        return RelayReport(name, rounds, is_finished, next_due_at=next_due_at)

    def _context(self) -> RelayContext:
        self._notifier = self._notifier or make_notifier(self._engine.settings, self._engine.clock)
        return RelayContext(self._engine, self._notifier, self._holder, random.SystemRandom())


async def _read_next_due(shard: Shard, relay: str) -> datetime | None:
    """When a sink that was down is tried again, or the first parked event is."""
    state = await shard.relay_state(relay)
    parked = await shard.read_parked(relay, ParkedState.WAITING, 1)
    return min((at for at in (state.retry_at, *(one.due_at for one in parked)) if at is not None), default=None)


def is_about_jobs(event: object) -> bool:
    """Whether an invocation may have events to deliver: any but a batch of the table's stream without a job in it.

    Relays write to the table too. If that woke them, they would never rest.
    """
    records = event.get("Records") if isinstance(event, dict) else None
    if not isinstance(records, list) or not all(_is_of_stream(one) for one in records):
        return True
    return any(one["dynamodb"].get("Keys", {}).get("sk", {}).get("S") == JOB_ITEM for one in records)


def _is_of_stream(record: object) -> bool:
    return isinstance(record, dict) and isinstance(record.get("dynamodb"), dict)


def first_retry(reports: Iterable[RelayReport]) -> datetime | None:
    """When the first of all relays has another attempt to make."""
    return min((one.next_due_at for one in reports if one.next_due_at is not None), default=None)


def raise_failures(reports: Iterable[RelayReport]) -> None:
    """Raise Unavailable if a relay failed, after all had their turn."""
    failed = [f"{one.relay}: {one.error}" for one in reports if one.error is not None]
    if failed:
        raise Unavailable(f"events are not delivered: {'; '.join(failed)}")
