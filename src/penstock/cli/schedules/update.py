"""`penstock schedules update`"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.jobs.params import params_schema, read_params
from penstock.cli.machine import print_json
from penstock.cli.schedules import terms
from penstock.cli.schedules.face import next_tick
from penstock.cli.server import connected

if TYPE_CHECKING:
    from penstock.client import Client


@command(
    "update",
    'penstock schedules update nightly --cron "30 2 * * *"',
    "penstock schedules update poll url=https://example.org --overlap skip",
)
@click.argument("name", metavar="NAME")
@click.argument("words", metavar="[PARAMS]...", nargs=-1)
@click.option("--type", metavar="TYPE", help="Run jobs of this type.")
@terms.all_terms
@options.remote
def update(
    *, name: str, words: tuple[str, ...], url: str | None, config: Path | None, as_json: bool, **given: Any
) -> None:
    """Change a schedule. What is not named stays as it is; PARAMS, if any are given, replace all of its params."""
    changes = terms.said(given)
    if not changes and not words:
        raise click.UsageError("nothing to change: name at least one option or param")
    with connected(url, config) as client:
        if words:
            changes["params"] = read_params(words, lambda: params_schema(client, _type_of(client, name, changes)))
        changed = client.update_schedule(name, **changes)
    if as_json:
        print_json(changed)
    else:
        ink.say(f"{changed.name} (version {changed.version}): {next_tick(changed)}")


def _type_of(client: "Client", name: str, changes: Mapping[str, Any]) -> str:
    return str(changes.get("type") or client.get_schedule(name).type)
