"""`penstock shards add`"""

import sys
from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.shards.face import sentence


@command("add", "penstock shards add postgresql://penstock@db4/penstock", "penstock shards add --weight 0.5 - < url")
@click.argument("place", metavar="SHARD_URL")
@click.option("--number", type=click.IntRange(0, 4095), metavar="N", help="Its number.  [default: the next free one]")
@click.option("--weight", type=click.FloatRange(0), default=1.0, show_default=True, help="Its share of new jobs.")
@click.option("--keyed", is_flag=True, help="Let keys and schedules live there too; see above.")
@options.remote
def add(
    *, place: str, number: int | None, weight: float, keyed: bool, url: str | None, config: Path | None, as_json: bool
) -> None:
    """Add a shard while everything runs. SHARD_URL is as the servers reach it; `-` reads it from standard input.

    It gets its share of the jobs without a key. Jobs with a key go on to live where they did, unless the shard is
    --keyed: then a part of all keys moves there. The jobs those keys have given are still found where they are, as long
    as any is kept. Refused while a schedule would have to move.

    The URL is kept on every shard: leave the password to ~/.pgpass or PGPASSWORD of the servers.
    """
    if place == "-":
        place = sys.stdin.readline().strip()
    with connected(url, config) as client:
        added = client.add_shard(place, number=number, weight=weight, keyed=keyed)
    if as_json:
        print_json(added)
    else:
        ink.say(sentence(added))
