"""`penstock queues`: how many jobs wait where, and which queues are paused."""

from collections.abc import Sequence
from datetime import timedelta

import click

from penstock.cli import style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import lasted, print_table
from penstock.model.lifecycle import State
from penstock.model.wire.jobs import QueueItem, QueueList

queues = CommandGroup(
    name="queues",
    help="Look at queues, pause and resume them.",
    examples=("penstock queues list", "penstock queues pause thumbnail"),
    lazy={
        "list": ("penstock.cli.queues:list_queues", "List queues with their depths by state."),
        "pause": ("penstock.cli.queues:pause", "Let no more jobs of a queue start."),
        "resume": ("penstock.cli.queues:resume", "Let jobs of a paused queue start again."),
    },
    default="list",
)


HEADS = ("QUEUE", *(state.upper() for state in State), "OLDEST", "")


@command("list", "penstock queues list --json")
@remote
def list_queues(*, server: RemoteServer) -> None:
    """List queues: how many jobs in each state, how long the oldest due one has waited, and what is paused."""
    found = server.ask(lambda client: client.queues())
    server.show_list(QueueList(found), found, print_queues, "no queues yet: a queue appears with its first job")


def print_queues(found: Sequence[QueueItem]) -> None:
    """One line per queue."""
    print_table(HEADS, [_row(queue) for queue in found], right=HEADS[1:-1])


def _row(queue: QueueItem) -> tuple[str, ...]:
    oldest = timedelta(seconds=queue.oldest_seconds) if queue.oldest_seconds is not None else None
    counts = (f"{queue.jobs.get(state, 0) or '-'}" for state in State)
    return (queue.name, *counts, lasted(oldest), style.warned("paused") if queue.paused else "")


@command("pause", "penstock queues pause thumbnail")
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@remote
def pause(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Let no more jobs of a queue start; those running go on."""
    server.for_each(
        names,
        lambda client, name: client.pause(name),
        lambda queue: f"{queue.name} is paused; go on with: penstock queues resume {queue.name}",
    )


@command("resume", "penstock queues resume thumbnail")
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@remote
def resume(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Let jobs of a paused queue start again."""
    server.for_each(names, lambda client, name: client.resume(name), lambda queue: f"{queue.name} runs again")
