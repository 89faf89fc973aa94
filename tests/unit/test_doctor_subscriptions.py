"""The doctor says of each subscription whether its events are delivered, and what to do if not."""

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.cli.doctor.findings import FindingStatus
from penstock.cli.doctor.subscriptions import judge_deliveries
from penstock.model.ids import ShardId
from penstock.model.subscriptions import DeliveryLimits, EventContent, EventFilter, SubscriptionState, WebhookSink
from penstock.model.wire.subscriptions import CircuitState, RelayItem, SubscriptionReport, SubscriptionSource

AT = datetime(2030, 1, 1, tzinfo=UTC)


def report(state: SubscriptionState = SubscriptionState.ACTIVE, **changes: Any) -> SubscriptionReport:
    usual: dict[str, Any] = {
        "circuit": CircuitState.CLOSED,
        "failures": 0,
        "retry_at": None,
        "lag_entries": 0,
        "lag_seconds": 0.0,
        "waiting": 0,
        "dead": 0,
        "delivered": 9,
        "failed": 0,
    }
    return SubscriptionReport(
        name="orders",
        state=state,
        reason="the sink is gone" if state is SubscriptionState.DISABLED else None,
        sink=WebhookSink("https://example.com"),
        filter=EventFilter(),
        include=EventContent.ITEM,
        batch=1,
        limits=DeliveryLimits(),
        secrets=(),
        source=SubscriptionSource.API,
        created_at=AT,
        changed_at=AT,
        relays=(RelayItem(shard=ShardId(0), **usual), RelayItem(shard=ShardId(1), **usual | changes)),
    )


@pytest.mark.parametrize(
    ("found", "status", "text"),
    [
        (report(), FindingStatus.OK, "up to date"),
        (report(waiting=3), FindingStatus.OK, "up to date, 3 events wait for another attempt"),
        (report(SubscriptionState.PAUSED), FindingStatus.OK, "paused; its events wait in the journal"),
        (report(SubscriptionState.DISABLED), FindingStatus.WARN, "disabled: the sink is gone"),
        (report(circuit=CircuitState.OPEN), FindingStatus.WARN, "its sink is down; its events wait in the journal"),
        (report(dead=1_200), FindingStatus.WARN, "1,200 events were given up"),
        (report(lag_seconds=75.0), FindingStatus.WARN, "75 s behind"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_state_of_deliveries_has_its_finding(found: SubscriptionReport, status: FindingStatus, text: str) -> None:
    finding = judge_deliveries(found)
    assert (finding.status, finding.found) == (status, text)
    assert bool(finding.remedy) == (status is FindingStatus.WARN)
