"""`penstock schedules resume`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.schedules.face import next_tick
from penstock.cli.server import connected


@command("resume", "penstock schedules resume nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.remote
def resume(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Let ticks of a paused schedule come again. About those that were missed its misfire policy decides."""
    with connected(url, config) as client:
        for name in names:
            item = client.resume_schedule(name)
            if as_json:
                print_json(item)
            else:
                ink.say(f"{item.name}: {next_tick(item)}")
