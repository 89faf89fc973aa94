"""`penstock shards list`"""

from pathlib import Path

from penstock.cli import options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.shards.face import print_shards
from penstock.model.shard_wire import ShardList


@command("list", "penstock shards list --json")
@options.remote
def standing(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """List shards: what is wanted of each, whether it answers, and how many jobs are open and ended there."""
    with connected(url, config) as client:
        found = client.shards()
    if as_json:
        print_json(ShardList(found))
    else:
        print_shards(found)
