"""`penstock fleets scale`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.fleets.face import sentence
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.client.fleet_calls import WorkerCount

AUTO = "auto"


def worker_count(text: str) -> WorkerCount:
    """Read a number of workers, or `auto`."""
    if text == AUTO:
        return "auto"
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is not a number of workers; write one such as 5, or {AUTO}")
    return int(text)


@command("scale", "penstock fleets scale thumbnail 5", "penstock fleets scale thumbnail auto")
@click.argument("name", metavar="FLEET")
@click.argument("count", metavar="COUNT", type=worker_count)
@options.remote
def scale(*, name: str, count: WorkerCount, url: str | None, config: Path | None, as_json: bool) -> None:
    """Let a fleet have COUNT workers, whatever waits; `auto` leaves that to its policy again.

    Where there are too many, idle ones go; busy ones finish their jobs first.
    """
    with connected(url, config) as client:
        item = client.scale_fleet(name, count)
    if as_json:
        print_json(item)
        return
    ink.say(sentence(item))
    if item.count is not None:
        ink.say(f"leave it to its policy again with: penstock fleets scale {item.name} {AUTO}")
