"""How a shard looks to a person."""

from collections.abc import Sequence

from penstock.cli import ink
from penstock.cli.spans import ago
from penstock.cli.table import print_table
from penstock.model.lifecycle import TERMINAL
from penstock.model.shard_wire import ShardItem

HEADS = ("SHARD", "STATE", "WEIGHT", "KEYED", "HEALTH", "SINCE", "OPEN", "ENDED", "URL")


def print_shards(items: Sequence[ShardItem]) -> None:
    """One line per shard; why one does not answer follows below."""
    print_table(HEADS, [_row(item) for item in items], right=("SHARD", "WEIGHT", "OPEN", "ENDED"))
    for item in items:
        if item.reason is not None:
            ink.say(f"shard {item.number}: {item.reason}", err=True)


def sentence(item: ShardItem) -> str:
    """What is wanted of a shard, in a line."""
    keyed = "keys and schedules live there too" if item.keyed else "no keys live there"
    return f"shard {item.number} is {item.state}, weight {item.weight:g}; {keyed}"


def _row(item: ShardItem) -> tuple[str, ...]:
    health = ink.good("well") if item.well else ink.bad("down")
    keyed = "yes" if item.keyed else "no"
    return (
        str(item.number),
        item.state,
        f"{item.weight:g}",
        keyed,
        health,
        ago(item.since),
        *_jobs(item),
        item.url or "",
    )


def _jobs(item: ShardItem) -> tuple[str, str]:
    """How many have not ended, and how many have."""
    if item.jobs is None:
        return "?", "?"
    ended = sum(jobs for state, jobs in item.jobs.items() if state in TERMINAL)
    return str(sum(item.jobs.values()) - ended), str(ended)
