"""Subscriptions: whether their events are delivered, or why not."""

from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote

import msgspec

from penstock.cli.connection import fetch
from penstock.cli.doctor.findings import Finding, ok, warn
from penstock.model.subscriptions import SubscriptionState
from penstock.model.wire.subscriptions import CircuitState, SubscriptionList, SubscriptionReport

MOST_LAG_SECONDS: Final = 60.0
MOST_EXAMINED: Final = 20


async def examine_subscriptions(url: str, key: str) -> AsyncIterator[Finding]:
    """A finding for each subscription, the first ones by name; none where the key may not read them."""
    status, body = await fetch(url, "/v1/subscriptions", key)
    if status != 200:
        return
    for one in msgspec.json.decode(body, type=SubscriptionList).subscriptions[:MOST_EXAMINED]:
        status, body = await fetch(url, f"/v1/subscriptions/{quote(one.name)}", key)
        if status == 200:
            yield judge_deliveries(msgspec.json.decode(body, type=SubscriptionReport))


def judge_deliveries(report: SubscriptionReport) -> Finding:
    """What keeps the events of a subscription from being delivered, the gravest first."""
    name, show = f"subscription {report.name}", f"penstock subscriptions deliveries {report.name}"
    if report.state is SubscriptionState.DISABLED:
        return warn(name, f"disabled: {report.reason}", f"penstock subscriptions resume {report.name}")
    if report.state is SubscriptionState.PAUSED:
        return ok(name, "paused; its events wait in the journal")
    if any(relay.circuit is CircuitState.OPEN for relay in report.relays):
        return warn(name, "its sink is down; its events wait in the journal", f"see why with: {show}")
    if dead := sum(relay.dead for relay in report.relays):
        remedy = f"see why with: {show}; then: penstock subscriptions replay {report.name} --dead"
        return warn(name, f"{dead:,} events were given up", remedy)
    lag = max((relay.lag_seconds for relay in report.relays), default=0.0)
    if lag > MOST_LAG_SECONDS:
        return warn(name, f"{lag:.0f} s behind", "run a scheduler, or raise limits.in_flight or batch")
    waiting = sum(relay.waiting for relay in report.relays)
    return ok(name, f"up to date, {waiting:,} events wait for another attempt" if waiting else "up to date")
