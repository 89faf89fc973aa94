"""`penstock fleets set`"""

from pathlib import Path
from typing import Any

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.fleets.face import sentence
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.spans import span


@command("set", "penstock fleets set thumbnail --min 1 --max 40 --target-wait 2s", "penstock fleets set mail --reset")
@click.argument("name", metavar="FLEET")
@click.option("--min", type=click.IntRange(0), metavar="N", help="Fewest workers.")
@click.option("--max", type=click.IntRange(1), metavar="N", help="Most workers.")
@click.option("--target-wait", type=span, metavar="SPAN", help="How soon nearly every job should start.")
@click.option("--capacity", type=click.IntRange(1), metavar="N", help="Jobs that one worker runs at once.")
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="A queue to serve; may be repeated.")
@click.option("--out-after", type=span, metavar="SPAN", help="How long a need must last before it is met.")
@click.option("--in-after", type=span, metavar="SPAN", help="How long idle workers are kept.")
@click.option("--blind-for", type=span, metavar="SPAN", help="How long to hold when nothing can be observed.")
@click.option("--fallback", type=click.IntRange(0), metavar="N", help="Fewest workers after that.")
@click.option("--reset", is_flag=True, default=None, help="Forget what was set before.")
@options.remote
def set_(*, name: str, url: str | None, config: Path | None, as_json: bool, **given: Any) -> None:
    """Change a fleet while everything runs; what is not named stays as it is.

    What is set here goes before what is declared beside jobs and in penstock.toml. Image, command, environment and
    limits are changed there only.
    """
    changes = {option: value for option, value in given.items() if value not in (None, ())}
    if not changes:
        raise click.UsageError("nothing to change: name at least one option, such as --max 40")
    with connected(url, config) as client:
        item = client.update_fleet(name, **changes)
    if as_json:
        print_json(item)
    else:
        ink.say(sentence(item))
