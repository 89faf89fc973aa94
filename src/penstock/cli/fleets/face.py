"""How a fleet looks to a person."""

from collections.abc import Sequence

from penstock.cli import ink
from penstock.cli.spans import ago
from penstock.cli.table import print_pairs, print_table
from penstock.model.fleet_wire import FleetDecision, FleetItem
from penstock.model.fleets import Depth, Fleet, Wait
from penstock.model.spans import settled

HEADS = ("FLEET", "QUEUES", "WORKERS", "IDLE", "BUSY", "DESIRED", "MIN", "MAX", "POLICY", "WHY")
NUMBERS = ("WORKERS", "IDLE", "BUSY", "DESIRED", "MIN", "MAX")
DECISION_HEADS = ("TIME", "DESIRED", "START", "STOP", "BACKLOG", "RUNNING", "WORKERS", "REASON")
DECISION_NUMBERS = DECISION_HEADS[1:-1]
AT_WORK = ("starting", "idle", "busy")


def print_fleets(items: Sequence[FleetItem]) -> None:
    """One line per fleet; what is wrong with one follows below."""
    print_table(HEADS, [_row(item) for item in items], right=NUMBERS)
    for item in items:
        for fault in (*item.faults, *((item.trouble,) if item.trouble else ())):
            ink.say(f"fleet {item.name}: {fault}", err=True)


def print_fleet(item: FleetItem) -> None:
    """Everything about one fleet, its decisions below."""
    print_pairs([pair for pair in _pairs(item) if pair[1]])
    if item.decisions:
        ink.say()
        print_table(DECISION_HEADS, [_decision(one) for one in item.decisions], right=DECISION_NUMBERS)


def sentence(item: FleetItem) -> str:
    """What is wanted of a fleet, in a line."""
    return f"fleet {item.name}: {_bounds(item.fleet)}, {_policy(item)}"


def _row(item: FleetItem) -> tuple[str, ...]:
    fleet, workers = item.fleet, item.workers
    return (
        item.name,
        _queues(item),
        _present(workers),
        _count(workers.get("idle")),
        _count(workers.get("busy")),
        _count(item.desired),
        str(fleet.min),
        str(fleet.max),
        _policy(item),
        item.reason or "no autoscaler runs this fleet",
    )


def _pairs(item: FleetItem) -> list[tuple[str, str]]:
    fleet = item.fleet
    return [
        ("fleet", item.name),
        ("declared in", item.source),
        ("queues", _queues(item)),
        ("workers", ", ".join(f"{count} {state}" for state, count in item.workers.items() if count) or "none"),
        ("desired", _count(item.desired)),
        ("bounds", _bounds(fleet)),
        ("policy", _policy(item)),
        ("capacity", "" if fleet.capacity is None else str(fleet.capacity)),
        ("image", fleet.image or ""),
        ("why", item.reason or "no autoscaler runs this fleet"),
        ("app", item.app or ""),
        ("looked at", _looked_at(item)),
        ("trouble", ink.bad(item.trouble) if item.trouble else ""),
        ("faults", ink.bad("\n".join(item.faults)) if item.faults else ""),
        ("in all", f"{item.started} started, {item.stopped} asked to stop"),
    ]


def _looked_at(item: FleetItem) -> str:
    if item.latest is None:
        return ""
    return ago(item.latest.at) + (f" by {item.autoscaler}" if item.autoscaler else "")


def _decision(one: FleetDecision) -> tuple[str, ...]:
    look = one.reading
    workers = {state: count for state in AT_WORK if (count := getattr(look, state)) is not None}
    return (
        one.at.astimezone().strftime("%m-%d %H:%M:%S"),
        str(one.desired),
        str(one.start or ""),
        str(one.stop or ""),
        _count(look.backlog),
        _count(look.running),
        _present(workers),
        one.reason,
    )


def _present(workers: dict[str, int]) -> str:
    """Those that run jobs, or will; unknown where they could not be seen."""
    return str(sum(workers[state] for state in AT_WORK)) if set(AT_WORK) <= set(workers) else "?"


def _queues(item: FleetItem) -> str:
    if item.queues is not None:
        return ", ".join(item.queues) or "none"
    return f"all but {', '.join(item.except_queues)}" if item.except_queues else "all"


def _policy(item: FleetItem) -> str:
    if item.paused:
        return "paused"
    if item.count is not None:
        return f"{item.count} by hand"
    match item.fleet.rule:
        case Wait(target=target):
            return f"wait {settled(target):g} s"
        case Depth(steps=steps):
            return "depth " + ", ".join(f">{step.above}: +{step.add}" for step in steps)


def _bounds(fleet: Fleet) -> str:
    return f"{fleet.min} to {fleet.max} workers"


def _count(count: int | None) -> str:
    return "?" if count is None else str(count)
