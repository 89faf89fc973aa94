"""`penstock types alias`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("alias", "penstock types alias thumbnail make_thumbnail", "penstock types alias thumbnail --remove")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", required=False)
@click.option("--remove", is_flag=True, help="Let OLD be run by its own handler again.")
@options.remote
def alias(*, old: str, new: str | None, remove: bool, url: str | None, config: Path | None, as_json: bool) -> None:
    """Let jobs and submits of the type OLD be run as NEW, which workers have declared: after a handler was renamed."""
    if (new is None) != remove:
        raise click.UsageError("give the type that OLD is run as, or --remove")
    with connected(url, config) as client:
        if new is None:
            client.remove_type_alias(old)
            ink.say(f"{old} is run as itself again")
            return
        item = client.alias_type(old, new)
    if as_json:
        print_json(item)
    else:
        ink.say(f"{old} is run as {item.name}; undo it with: penstock types alias {old} --remove")
