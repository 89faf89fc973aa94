"""`penstock schedules show`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.schedules.face import print_schedule
from penstock.cli.schedules.last import last_results
from penstock.cli.server import connected


@command("show", "penstock schedules show nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.remote
def show(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Show everything about schedules: when they tick, what they run, their policies and their last tick."""
    with connected(url, config) as client:
        for number, name in enumerate(names):
            item = client.get_schedule(name)
            if as_json:
                print_json(item)
                continue
            if number:
                ink.say()
            print_schedule(item, last_results(client, [item]).get(name, ""))
