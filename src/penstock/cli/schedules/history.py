"""`penstock schedules history`"""

from itertools import islice
from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.schedules.face import print_ticks
from penstock.cli.schedules.last import result_of
from penstock.cli.server import connected

PAGE = 500


@command("history", "penstock schedules history nightly --limit 50")
@click.argument("name", metavar="NAME")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most ticks to list.")
@options.remote
def history(*, name: str, limit: int, url: str | None, config: Path | None, as_json: bool) -> None:
    """List ticks, newest first: the job each became and its state, or why it was skipped."""
    with connected(url, config) as client:
        found = list(islice(client.ticks(name, page_size=min(limit + 1, PAGE)), limit + 1))
        listed, more = found[:limit], len(found) > limit
        results = [] if as_json else [result_of(client, tick) for tick in listed]
    if as_json:
        print_json({"ticks": listed, "more": more})
    elif listed:
        print_ticks(listed, results)
    else:
        ink.say(f"{name} has not ticked yet; see what comes with: penstock schedules preview {name}", err=True)
    if more and not as_json:
        ink.hint(f"there are more than {limit}: see them with --limit")
