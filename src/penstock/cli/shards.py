"""`penstock shards`: the databases that jobs live in."""

import sys
from collections.abc import Sequence

import click

from penstock.cli import style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import ago, print_table
from penstock.model.lifecycle import TERMINAL
from penstock.model.shards import ShardState
from penstock.model.wire.shards import ShardItem, ShardList

shards = CommandGroup(
    name="shards",
    help="Look at shards; add, weigh, drain and remove them.",
    examples=("penstock shards list", "penstock shards add postgresql://db4/penstock", "penstock shards drain 2"),
    lazy={
        "list": ("penstock.cli.shards:list_shards", "List shards and how they are."),
        "add": ("penstock.cli.shards:add", "Add a shard while everything runs."),
        "set": ("penstock.cli.shards:set_", "Change a shard's weight, state or place in the ring."),
        "drain": ("penstock.cli.shards:drain", "Let no more new jobs go to a shard."),
        "remove": ("penstock.cli.shards:remove", "Remove a drained shard."),
    },
    default="list",
)


HEADS = ("SHARD", "STATE", "WEIGHT", "KEYED", "HEALTH", "SINCE", "OPEN", "ENDED", "URL")


def print_shards(items: Sequence[ShardItem]) -> None:
    """One line per shard; why one does not answer follows below."""
    print_table(HEADS, [_row(item) for item in items], right=("SHARD", "WEIGHT", "OPEN", "ENDED"))
    for item in items:
        if item.reason is not None:
            style.say(f"shard {item.number}: {item.reason}", err=True)


def sentence(item: ShardItem) -> str:
    """What is wanted of a shard, in a line."""
    keyed = "keys and schedules live there too" if item.keyed else "no keys live there"
    return f"shard {item.number} is {item.state}, weight {item.weight:g}; {keyed}"


def _row(item: ShardItem) -> tuple[str, ...]:
    health = style.good("well") if item.well else style.bad("down")
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


@command("list", "penstock shards list --json")
@remote
def list_shards(*, server: RemoteServer) -> None:
    """List shards: what is wanted of each, whether it answers, and how many jobs are open and ended there."""
    found = server.ask(lambda client: client.shards())
    server.show(ShardList(found), lambda: print_shards(found))


@command("add", "penstock shards add postgresql://penstock@db4/penstock", "penstock shards add --weight 0.5 - < url")
@click.argument("place", metavar="SHARD_URL")
@click.option("--number", type=click.IntRange(0, 4095), metavar="N", help="Its number.  [default: the next free one]")
@click.option("--weight", type=click.FloatRange(0), default=1.0, show_default=True, help="Its share of new jobs.")
@click.option("--keyed", is_flag=True, help="Let keys and schedules live there too; see above.")
@remote
def add(*, place: str, number: int | None, weight: float, keyed: bool, server: RemoteServer) -> None:
    """Add a shard while everything runs. SHARD_URL is as the servers reach it; `-` reads it from standard input.

    It gets its share of the jobs without a key. Jobs with a key go on to live where they did, unless the shard is
    --keyed: then a part of all keys moves there. The jobs those keys have given are still found where they are, as long
    as any is kept. Refused while a schedule would have to move.

    The URL is kept on every shard: leave the password to ~/.pgpass or PGPASSWORD of the servers.
    """
    if place == "-":
        place = sys.stdin.readline().strip()
    added = server.ask(lambda client: client.add_shard(place, number=number, weight=weight, keyed=keyed))
    server.say(added, sentence(added))


@command("set", "penstock shards set 2 --weight 0.5", "penstock shards set 2 --state active")
@click.argument("number", metavar="SHARD", type=int)
@click.option("--weight", type=click.FloatRange(0), help="Its share of new jobs; 0 for none.")
@click.option("--state", type=click.Choice([state.value for state in ShardState]), help="What is wanted of it.")
@click.option("--keyed/--no-keyed", default=None, help="Whether keys and schedules may live there; see above.")
@remote
def set_(*, number: int, weight: float | None, state: str | None, keyed: bool | None, server: RemoteServer) -> None:
    """Change a shard; what is not named stays as it is.

    An active shard takes new jobs, a draining one only those whose key lives there, and one that is down is not asked
    for anything.

    --keyed and --no-keyed change the ring that keys live on: a part of them moves. The jobs those keys have given are
    still found where they are, as long as any is kept. Refused while a schedule would move.
    """
    if weight is None and state is None and keyed is None:
        raise click.UsageError("nothing to change: name --weight, --state, --keyed or --no-keyed")
    wanted = ShardState(state) if state else None
    changed = server.ask(lambda client: client.update_shard(number, weight=weight, state=wanted, keyed=keyed))
    server.say(changed, sentence(changed))


@command("drain", "penstock shards drain 2")
@click.argument("number", metavar="SHARD", type=int)
@remote
def drain(*, number: int, server: RemoteServer) -> None:
    """Let no more new jobs go to a shard; what it has goes on, and jobs whose key lives there still come."""
    drained = server.ask(lambda client: client.update_shard(number, state=ShardState.DRAINING))
    keys = f"keys still bring it jobs; let them live elsewhere with: penstock shards set {number} --no-keyed"
    server.say(drained, sentence(drained) + (f"\n{keys}" if drained.keyed else ""))


@command("remove", "penstock shards remove 2")
@click.argument("number", metavar="SHARD", type=int)
@click.option(
    "--force", is_flag=True, help="Also while it keeps ended jobs, or is set down: nobody can read them then."
)
@remote
def remove(*, number: int, force: bool, server: RemoteServer) -> None:
    """Remove a shard that was drained and that no keys live on; its database is left as it is.

    Refused while it has jobs that have not ended. One that is lost for good is given up by setting it down first:
    penstock shards set 2 --state down
    """
    server.ask(lambda client: client.remove_shard(number, force=force))
    server.say({"removed": number}, f"shard {number} is removed; its database is left as it is")
