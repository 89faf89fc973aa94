"""`penstock fleets pause`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("pause", "penstock fleets pause thumbnail")
@click.argument("names", metavar="FLEET...", nargs=-1, required=True)
@options.remote
def pause(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Leave fleets as they are: no worker is started or stopped, whatever waits."""
    with connected(url, config) as client:
        for name in names:
            item = client.pause_fleet(name)
            if as_json:
                print_json(item)
            else:
                ink.say(f"fleet {item.name} is paused; go on with: penstock fleets resume {item.name}")
