"""`penstock schedules pause`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("pause", "penstock schedules pause nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.remote
def pause(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Let no more ticks of a schedule come. Those that pass meanwhile are missed."""
    with connected(url, config) as client:
        for name in names:
            item = client.pause_schedule(name)
            if as_json:
                print_json(item)
            else:
                ink.say(f"{item.name} is paused; go on with: penstock schedules resume {item.name}")
