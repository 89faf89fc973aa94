"""`penstock queues resume`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("resume", "penstock queues resume thumbnail")
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@options.remote
def resume(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Let jobs of a paused queue start again."""
    with connected(url, config) as client:
        for name in names:
            queue = client.resume(name)
            if as_json:
                print_json(queue)
            else:
                ink.say(f"{queue.name} runs again")
