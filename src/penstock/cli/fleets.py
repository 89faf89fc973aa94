"""`penstock fleets`: workers that come with work and go without it."""

from collections.abc import Sequence
from typing import Any

import click

from penstock.cli import style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import ago, print_pairs, print_table, span
from penstock.client.fleet_calls import WorkerCount
from penstock.model.durations import settled
from penstock.model.fleets import Depth, Fleet, Wait
from penstock.model.wire.fleets import FleetDecision, FleetItem, FleetList

fleets = CommandGroup(
    name="fleets",
    help="Look at fleets of workers; bound, pause and scale them.",
    examples=("penstock fleets list", "penstock fleets show thumbnail", "penstock fleets set thumbnail --max 40"),
    lazy={
        "list": ("penstock.cli.fleets:list_fleets", "List fleets: their queues, workers and bounds."),
        "show": ("penstock.cli.fleets:show", "Show a fleet and its latest decisions, with reasons."),
        "set": ("penstock.cli.fleets:set_", "Change a fleet's bounds or policy while everything runs."),
        "pause": ("penstock.cli.fleets:pause", "Leave fleets as they are: start and stop nobody."),
        "resume": ("penstock.cli.fleets:resume", "Look after paused fleets again."),
        "scale": (
            "penstock.cli.fleets:scale",
            "Let a fleet have so many workers by hand, or as its policy says.",
        ),
    },
    default="list",
)


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
            style.say(f"fleet {item.name}: {fault}", err=True)


def print_fleet(item: FleetItem) -> None:
    """Everything about one fleet, its decisions below."""
    print_pairs([pair for pair in _pairs(item) if pair[1]])
    if item.decisions:
        style.say()
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
        ("trouble", style.bad(item.trouble) if item.trouble else ""),
        ("faults", style.bad("\n".join(item.faults)) if item.faults else ""),
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


@command("list", "penstock fleets list")
@remote
def list_fleets(*, server: RemoteServer) -> None:
    """List fleets: which queues each serves, its workers and bounds, and why it has as many as it has."""
    items = server.ask(lambda client: client.fleets())
    server.show(FleetList(items), lambda: print_fleets(items))


@command("show", "penstock fleets show thumbnail")
@click.argument("name", metavar="FLEET")
@remote
def show(*, name: str, server: RemoteServer) -> None:
    """Show a fleet and its latest decisions, newest first: when, what was seen, how many were wanted, and why."""
    item = server.ask(lambda client: client.get_fleet(name))
    server.show(item, lambda: print_fleet(item))


@command("set", "penstock fleets set thumbnail --min 1 --max 40 --target-wait 2s", "penstock fleets set mail --reset")
@click.argument("name", metavar="FLEET")
@click.option("--min", type=click.IntRange(0), metavar="N", help="Fewest workers.")
@click.option("--max", type=click.IntRange(1), metavar="N", help="Most workers.")
@click.option("--target-wait", type=span, metavar="SPAN", help="How soon nearly every job should start.")
@click.option("--capacity", type=click.IntRange(1), metavar="N", help="Jobs that one worker runs at once.")
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="A queue to serve; may be repeated.")
@click.option("--out-after", type=span, metavar="SPAN", help="How long a need must last before it is met.")
@click.option("--in-after", type=span, metavar="SPAN", help="How long idle workers are kept.")
@click.option("--blind-for", type=span, metavar="SPAN", help="How long to hold when nothing can be observed.")
@click.option("--fallback", type=click.IntRange(0), metavar="N", help="Fewest workers after that.")
@click.option("--reset", is_flag=True, default=None, help="Forget what was set before.")
@remote
def set_(*, name: str, server: RemoteServer, **given: Any) -> None:
    """Change a fleet while everything runs; what is not named stays as it is.

    What is set here goes before what is declared beside jobs and in penstock.toml. Image, command, environment and
    limits are changed there only.
    """
    changes = {option: value for option, value in given.items() if value not in (None, ())}
    if not changes:
        raise click.UsageError("nothing to change: name at least one option, such as --max 40")
    item = server.ask(lambda client: client.update_fleet(name, **changes))
    server.say(item, sentence(item))


@command("pause", "penstock fleets pause thumbnail")
@click.argument("names", metavar="FLEET...", nargs=-1, required=True)
@remote
def pause(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Leave fleets as they are: no worker is started or stopped, whatever waits."""
    server.for_each(
        names,
        lambda client, name: client.pause_fleet(name),
        lambda item: f"fleet {item.name} is paused; go on with: penstock fleets resume {item.name}",
    )


@command("resume", "penstock fleets resume thumbnail")
@click.argument("names", metavar="FLEET...", nargs=-1, required=True)
@remote
def resume(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Look after paused fleets again."""
    server.for_each(
        names, lambda client, name: client.resume_fleet(name), lambda item: f"fleet {item.name} is looked after again"
    )


AUTO = "auto"


def worker_count(text: str) -> WorkerCount:
    """Read a number of workers, or `auto`."""
    if text == AUTO:
        return "auto"
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is not a number of workers; write one such as 5, or {AUTO}")
    return int(text)


@command("scale", "penstock fleets scale thumbnail 5", "penstock fleets scale thumbnail auto")
@click.argument("name", metavar="FLEET")
@click.argument("count", metavar="COUNT", type=worker_count)
@remote
def scale(*, name: str, count: WorkerCount, server: RemoteServer) -> None:
    """Let a fleet have COUNT workers, whatever waits; `auto` leaves that to its policy again.

    Where there are too many, idle ones go; busy ones finish their jobs first.
    """
    item = server.ask(lambda client: client.scale_fleet(name, count))
    undo = f"leave it to its policy again with: penstock fleets scale {item.name} {AUTO}"
    server.say(item, sentence(item) + (f"\n{undo}" if item.count is not None else ""))
