"""`penstock queues pause`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("pause", "penstock queues pause thumbnail")
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@options.remote
def pause(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Let no more jobs of a queue start; those running go on."""
    with connected(url, config) as client:
        for name in names:
            queue = client.pause(name)
            if as_json:
                print_json(queue)
            else:
                ink.say(f"{queue.name} is paused; go on with: penstock queues resume {queue.name}")
