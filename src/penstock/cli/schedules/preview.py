"""`penstock schedules preview`"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.schedules import terms
from penstock.cli.schedules.face import local_times
from penstock.cli.server import connected


@command(
    "preview",
    "penstock schedules preview nightly --count 5",
    'penstock schedules preview --cron "0 2 * * *" --timezone Europe/Berlin',
)
@click.argument("name", metavar="[NAME]", required=False)
@terms.when
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many ticks.")
@options.remote
def preview(*, name: str | None, count: int, url: str | None, config: Path | None, as_json: bool, **given: Any) -> None:
    """Tell the next ticks: of the schedule NAME, or of what --cron or --interval would do. Nothing is stored."""
    when = terms.said(given)
    if bool(name) == bool(when):
        raise click.UsageError("give the NAME of a schedule, or --cron or --interval to try one out")
    with connected(url, config) as client:
        if name:
            zone, ticks = client.get_schedule(name).timezone, client.preview(name, count)
        else:
            zone, ticks = when.get("timezone"), client.preview_of(count, **when)
    _print(ticks, zone, as_json=as_json)


def _print(ticks: Sequence[datetime], zone: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"ticks": ticks})
    for line in local_times(ticks, zone) if not as_json else ():
        ink.say(line)
    if not ticks and not as_json:
        ink.say("no tick to come", err=True)
