"""Metrics of subscriptions, from what their relays have written: the same from every API."""

from collections.abc import Callable, Sequence

from penstock.api.exposition import Family, Sample
from penstock.engine import Engine
from penstock.model.wire.subscriptions import CircuitState, RelayItem

LAG_SECONDS = Family(
    "penstock_subscription_lag_seconds", "gauge", "Age of the oldest journal entry that a relay has not come to."
)
LAG_ENTRIES = Family(
    "penstock_subscription_lag_entries", "gauge", "Journal entries that a relay has not come to; each has many events."
)
PARKED = Family(
    "penstock_subscription_parked", "gauge", "Events that a sink refused, and those of the same jobs behind them."
)
DEAD = Family("penstock_subscription_dead", "gauge", "Events that were given up; they can be replayed.")
CIRCUIT_OPEN = Family(
    "penstock_subscription_circuit_open", "gauge", "1 while a relay sends only probes, as the sink is down."
)
DELIVERED = Family("penstock_subscription_delivered_total", "counter", "Events delivered, kept in the store.")
FAILED = Family(
    "penstock_subscription_failed_total", "counter", "Events whose delivery failed, each time; kept in the store."
)

RELAY_FAMILIES = (LAG_SECONDS, LAG_ENTRIES, PARKED, DEAD, CIRCUIT_OPEN, DELIVERED, FAILED)

_VALUES: dict[Family, Callable[[RelayItem], float]] = {
    LAG_SECONDS: lambda relay: relay.lag_seconds,
    LAG_ENTRIES: lambda relay: relay.lag_entries,
    PARKED: lambda relay: relay.waiting,
    DEAD: lambda relay: relay.dead,
    CIRCUIT_OPEN: lambda relay: relay.circuit is CircuitState.OPEN,
    DELIVERED: lambda relay: relay.delivered,
    FAILED: lambda relay: relay.failed,
}


async def read_relays(engine: Engine) -> Sequence[str]:
    """A shard that does not answer has no samples."""
    relays = await engine.deliveries.relays()
    return [family.text(_sample(name, one, value(one)) for name, one in relays) for family, value in _VALUES.items()]


def _sample(subscription: str, relay: RelayItem, value: float) -> Sample:
    return "", {"subscription": subscription, "shard": str(relay.shard)}, value
