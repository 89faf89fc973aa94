"""`penstock queues list`"""

from datetime import timedelta
from pathlib import Path

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.spans import lasted
from penstock.cli.table import print_table
from penstock.model.lifecycle import State
from penstock.model.wire import QueueItem, QueueList

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
        ink.say("no queues yet: a queue appears with its first job", err=True)


def row(queue: QueueItem) -> tuple[str, ...]:
    """A queue as a line of the table."""
    oldest = timedelta(seconds=queue.oldest_seconds) if queue.oldest_seconds is not None else None
    counts = (f"{queue.jobs.get(state, 0) or '-'}" for state in State)
    return (queue.name, *counts, lasted(oldest), ink.warned("paused") if queue.paused else "")
