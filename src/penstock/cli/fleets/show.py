"""`penstock fleets show`"""

from pathlib import Path

import click

from penstock.cli import options
from penstock.cli.commands import command
from penstock.cli.fleets.face import print_fleet
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("show", "penstock fleets show thumbnail")
@click.argument("name", metavar="FLEET")
@options.remote
def show(*, name: str, url: str | None, config: Path | None, as_json: bool) -> None:
    """Show a fleet and its latest decisions, newest first: when, what was seen, how many were wanted, and why."""
    with connected(url, config) as client:
        item = client.get_fleet(name)
    if as_json:
        print_json(item)
    else:
        print_fleet(item)
