"""`penstock shards drain`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.shards.face import sentence
from penstock.model.shards import ShardState


@command("drain", "penstock shards drain 2")
@click.argument("number", metavar="SHARD", type=int)
@options.remote
def drain(*, number: int, url: str | None, config: Path | None, as_json: bool) -> None:
    """Let no more new jobs go to a shard; what it has goes on, and jobs whose key lives there still come."""
    with connected(url, config) as client:
        drained = client.update_shard(number, state=ShardState.DRAINING)
    if as_json:
        print_json(drained)
        return
    ink.say(sentence(drained))
    if drained.keyed:
        ink.say(f"keys still bring it jobs; let them live elsewhere with: penstock shards set {number} --no-keyed")
