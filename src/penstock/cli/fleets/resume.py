"""`penstock fleets resume`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("resume", "penstock fleets resume thumbnail")
@click.argument("names", metavar="FLEET...", nargs=-1, required=True)
@options.remote
def resume(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Look after paused fleets again."""
    with connected(url, config) as client:
        for name in names:
            item = client.resume_fleet(name)
            if as_json:
                print_json(item)
            else:
                ink.say(f"fleet {item.name} is looked after again")
