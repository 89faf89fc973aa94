"""`penstock schedules create`"""

from functools import partial
from pathlib import Path
from typing import Any

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.jobs.params import params_schema, read_params
from penstock.cli.machine import print_json
from penstock.cli.schedules import terms
from penstock.cli.schedules.face import next_tick
from penstock.cli.server import connected
from penstock.model.schedule_wire import OnConflict


@command(
    "create",
    'penstock schedules create nightly report month=latest --cron "0 2 * * *" --timezone Europe/Berlin',
    "penstock schedules create poll fetch url=https://example.com --interval 90s --overlap skip",
    "penstock schedules create poll fetch --interval 2m --on-conflict replace",
)
@click.argument("name", metavar="NAME")
@click.argument("type_name", metavar="TYPE")
@click.argument("words", metavar="[PARAMS]...", nargs=-1)
@terms.all_terms
@click.option("--paused", is_flag=True, default=None, help="Create it paused; let it go with `schedules resume`.")
@click.option(
    "--on-conflict",
    type=click.Choice([choice.value for choice in OnConflict]),
    default=OnConflict.RAISE.value,
    show_default=True,
    help="What to do if there is one of this name.",
)
@options.remote
def create(
    *,
    name: str,
    type_name: str,
    words: tuple[str, ...],
    on_conflict: str,
    url: str | None,
    config: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a schedule that runs jobs of TYPE, on an --interval or by --cron.

    PARAMS are written as for `penstock jobs submit`. A schedule that is replaced by the same one is left untouched.
    """
    with connected(url, config) as client:
        made = client.schedule(
            name,
            type_name,
            read_params(words, partial(params_schema, client, type_name)),
            on_conflict=OnConflict(on_conflict),
            **terms.said(given),
        )
    if as_json:
        print_json(made)
    else:
        ink.say(f"{made.name} (version {made.version}): {next_tick(made)}")
