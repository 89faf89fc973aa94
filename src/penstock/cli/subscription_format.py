"""How subscriptions, their deliveries and their secrets are printed."""

from collections.abc import Sequence
from datetime import timedelta

from penstock.cli import style
from penstock.cli.format import ago, lasted, print_pairs, print_table
from penstock.model.subscriptions import EventFilter, SnsSink, SubscriptionState
from penstock.model.wire.subscriptions import (
    CircuitState,
    DeliveryItem,
    MadeSubscription,
    RelayItem,
    ReplayAnswer,
    SubscriptionItem,
    SubscriptionReport,
    SubscriptionSource,
    TestOutcome,
)

HEADS = ("SUBSCRIPTION", "STATE", "SINK", "EVENTS", "")
RELAY_HEADS = ("SHARD", "DELIVERED", "FAILED", "WAITING", "DEAD", "BEHIND", "CIRCUIT")
DELIVERY_HEADS = ("TIME", "SHARD", "", "STATUS", "EVENTS", "ATTEMPT", "TOOK", "FIRST", "DETAIL")
LONGEST_DETAIL = 80


def print_subscriptions(items: Sequence[SubscriptionItem]) -> None:
    """One line per subscription."""
    print_table(HEADS, [_row(item) for item in items])


def print_subscription(report: SubscriptionReport) -> None:
    """Everything about one subscription, its deliveries from each shard below."""
    print_pairs([pair for pair in _pairs(report) if pair[1]])
    style.say()
    print_table(RELAY_HEADS, [_relay(one) for one in report.relays], right=RELAY_HEADS[:-1])
    if report.missing_shards:
        missing = ", ".join(map(str, report.missing_shards))
        style.say(style.warned(f"no answer from shard {missing}: what it has delivered is not counted"), err=True)


def print_secret(made: MadeSubscription) -> None:
    """Print a new secret alone on stdout, so that it can be piped, and what to do with it on stderr."""
    if isinstance(made.sink, SnsSink):
        style.say(sentence(made), err=True)
        style.say(f"SNS signs what it sends; try it with: penstock subscriptions test {made.name}", err=True)
        return
    if made.secret is None:
        told = f"{made.name} is there, but its secret was shown to an earlier request"
        style.say(f"{told}; for a new one: penstock subscriptions rotate {made.name}", err=True)
        return
    style.say(made.secret)
    style.say(sentence(made), err=True)
    style.say("the secret is shown this once: keep it, and verify what comes in with it:", err=True)
    style.say("  penstock.webhooks.Receiver(secret).read(headers, body)", err=True)
    style.say(f"try it with: penstock subscriptions test {made.name}", err=True)


def print_deliveries(items: Sequence[DeliveryItem]) -> None:
    """One line per failure, and per row of successes."""
    print_table(DELIVERY_HEADS, [_delivery(one) for one in items], right=("SHARD", "EVENTS", "ATTEMPT", "TOOK"))


def sentence(item: SubscriptionItem) -> str:
    """What a subscription does, in a line."""
    return f"{item.name} delivers {_events(item.filter)} to {item.sink.address}"


def tested(name: str, outcome: TestOutcome) -> str:
    """What came of a test event, in a line."""
    took = lasted(timedelta(seconds=outcome.took_seconds))
    if outcome.delivered:
        return f"{name} took the test event {outcome.event}: {outcome.status} in {took}"
    answer = "no answer" if outcome.status is None else str(outcome.status)
    return f"{name} did not take the test event {outcome.event}: {answer} after {took}: {outcome.detail or '-'}"


def replayed(name: str, answer: ReplayAnswer) -> str:
    """What will be delivered again, in a line."""
    if not answer.events:
        return f"{name}: nothing to deliver again; what was not delivered yet will be anyway"
    again = f"{name}: {answer.events:,} {'event' if answer.events == 1 else 'events'} will be delivered again"
    return f"{again}; there are more: run it once more" if answer.more else again


def _row(item: SubscriptionItem) -> tuple[str, ...]:
    return (item.name, _state(item), item.sink.address, _events(item.filter), _remark(item))


def _pairs(item: SubscriptionItem) -> list[tuple[str, str]]:
    limits = item.limits
    rate = "" if limits.per_second is None else f", {limits.per_second:g} in a second"
    return [
        ("subscription", item.name),
        ("state", _state(item)),
        ("reason", item.reason or ""),
        ("sink", item.sink.address),
        ("events", _events(item.filter)),
        ("include", f"{item.include}, {item.batch} in a request" if item.batch > 1 else item.include),
        ("limits", f"{limits.in_flight} requests at a time{rate}"),
        ("secrets", "\n".join(_secret(item))),
        ("source", _remark(item)),
        ("created", ago(item.created_at)),
        ("changed", ago(item.changed_at)),
    ]


def _secret(item: SubscriptionItem) -> list[str]:
    return [
        f"made {ago(one.created_at)}" + (f", signs until {ago(one.valid_until)}" if one.valid_until else "")
        for one in item.secrets
    ]


def _state(item: SubscriptionItem) -> str:
    colours = {SubscriptionState.PAUSED: style.warned, SubscriptionState.DISABLED: style.bad}
    return colours.get(item.state, style.good)(item.state)


def _remark(item: SubscriptionItem) -> str:
    match item.source:
        case SubscriptionSource.SETTINGS:
            return "in penstock.toml"
        case SubscriptionSource.REMOVED:
            return style.warned(f"no longer in penstock.toml: penstock subscriptions delete {item.name}")
        case _:
            return ""


def _events(wanted: EventFilter) -> str:
    lists = {
        "type": wanted.types,
        "queue": wanted.queues,
        "state": wanted.states,
        "tag": wanted.tags,
    }
    said = [f"{name} {' or '.join(values)}" for name, values in lists.items() if values is not None]
    return f"events of {', '.join(said)}" if said else "all events"


def _relay(one: RelayItem) -> tuple[str, ...]:
    counts = [one.delivered, one.failed, one.waiting, one.dead]
    behind = lasted(timedelta(seconds=one.lag_seconds)) if one.lag_entries else "-"
    circuit = "closed"
    if one.circuit is CircuitState.OPEN:
        circuit = style.bad(f"open after {one.failures} failures, tried again {ago(one.retry_at)}")
    return (str(one.shard), *(f"{count:,}" for count in counts), behind, circuit)


def _delivery(one: DeliveryItem) -> tuple[str, ...]:
    detail = (one.detail or "").replace("\n", " ")
    return (
        one.at.astimezone().strftime("%m-%d %H:%M:%S"),
        str(one.shard),
        style.good("delivered") if one.delivered else style.bad("failed"),
        "-" if one.status is None else str(one.status),
        f"{one.events:,}",
        str(one.attempt),
        lasted(timedelta(seconds=one.took_seconds)),
        one.first,
        detail[:LONGEST_DETAIL],
    )
