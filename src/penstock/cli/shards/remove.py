"""`penstock shards remove`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("remove", "penstock shards remove 2")
@click.argument("number", metavar="SHARD", type=int)
@click.option(
    "--force", is_flag=True, help="Also while it keeps ended jobs, or is set down: nobody can read them then."
)
@options.remote
def remove(*, number: int, force: bool, url: str | None, config: Path | None, as_json: bool) -> None:
    """Remove a shard that was drained and that no keys live on; its database is left as it is.

    Refused while it has jobs that have not ended. One that is lost for good is given up by setting it down first:
    penstock shards set 2 --state down
    """
    with connected(url, config) as client:
        client.remove_shard(number, force=force)
    if as_json:
        print_json({"removed": number})
    else:
        ink.say(f"shard {number} is removed; its database is left as it is")
