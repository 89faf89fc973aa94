"""`penstock queues`"""

from datetime import timedelta
from pathlib import Path

import click

from penstock.cli import options, style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import connected
from penstock.cli.format import lasted, print_table
from penstock.cli.json_output import print_json
from penstock.model.lifecycle import State
from penstock.model.wire.jobs import QueueItem, QueueList

queues = CommandGroup(
    name="queues",
    help="Look at queues, pause and resume them.",
    examples=("penstock queues list", "penstock queues pause thumbnail"),
    lazy={
        "list": ("penstock.cli.queues:depths", "List queues with their depths by state."),
        "pause": ("penstock.cli.queues:pause", "Let no more jobs of a queue start."),
        "resume": ("penstock.cli.queues:resume", "Let jobs of a paused queue start again."),
    },
    default="list",
)


HEADS = ("QUEUE", *(state.upper() for state in State), "OLDEST", "")


@command("list", "penstock queues list --json")
@options.remote
def depths(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """List queues: how many jobs in each state, how long the oldest due one has waited, and what is paused."""
    with connected(url, config) as client:
        found = client.queues()
    if as_json:
        print_json(QueueList(found))
    elif found:
        print_table(HEADS, [row(queue) for queue in found], right=HEADS[1:-1])
    else:
        style.say("no queues yet: a queue appears with its first job", err=True)


def row(queue: QueueItem) -> tuple[str, ...]:
    """A queue as a line of the table."""
    oldest = timedelta(seconds=queue.oldest_seconds) if queue.oldest_seconds is not None else None
    counts = (f"{queue.jobs.get(state, 0) or '-'}" for state in State)
    return (queue.name, *counts, lasted(oldest), style.warned("paused") if queue.paused else "")


@command("pause", "penstock queues pause thumbnail")
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@options.remote
def pause(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Let no more jobs of a queue start; those running go on."""
    with connected(url, config) as client:
        for name in names:
            queue = client.pause(name)
            if as_json:
                print_json(queue)
            else:
                style.say(f"{queue.name} is paused; go on with: penstock queues resume {queue.name}")


@command("resume", "penstock queues resume thumbnail")
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@options.remote
def resume(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Let jobs of a paused queue start again."""
    with connected(url, config) as client:
        for name in names:
            queue = client.resume(name)
            if as_json:
                print_json(queue)
            else:
                style.say(f"{queue.name} runs again")
