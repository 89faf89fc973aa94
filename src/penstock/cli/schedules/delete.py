"""`penstock schedules delete`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("delete", "penstock schedules delete nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.remote
def delete(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Delete schedules and the history of their ticks; the jobs they made stay."""
    with connected(url, config) as client:
        for name in names:
            client.delete_schedule(name)
            if as_json:
                print_json({"deleted": name})
            else:
                ink.say(f"{name} is deleted; its jobs stay")
