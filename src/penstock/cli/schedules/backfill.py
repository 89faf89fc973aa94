"""`penstock schedules backfill`"""

from datetime import datetime
from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.spans import instant


@command("backfill", "penstock schedules backfill nightly --from 2026-11-01T00:00Z --to 2026-11-08T00:00Z")
@click.argument("name", metavar="NAME")
@click.option("--from", "from_at", type=instant, required=True, metavar="TIME", help="From this time on (ISO 8601).")
@click.option("--to", "to_at", type=instant, required=True, metavar="TIME", help="Up to this time; both are included.")
@options.remote
def backfill(
    *, name: str, from_at: datetime, to_at: datetime, url: str | None, config: Path | None, as_json: bool
) -> None:
    """Run past ticks of a schedule that have neither a job nor a record. Repeating it runs nothing twice."""
    with connected(url, config) as client:
        filled = client.backfill(name, from_at, to_at)
    if as_json:
        print_json({"ticks": filled})
    elif filled:
        ink.say(f"{len(filled)} ticks got a job; see them with: penstock schedules history {name}")
    else:
        ink.say("no tick of that span was without a job", err=True)
