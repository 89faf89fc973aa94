"""`penstock schedules list`"""

from itertools import islice
from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.schedules.face import print_schedules
from penstock.cli.schedules.last import last_results
from penstock.cli.server import connected

PAGE = 500


@command("list", "penstock schedules list --limit 50")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most schedules to list.")
@options.remote
def page(*, limit: int, url: str | None, config: Path | None, as_json: bool) -> None:
    """List schedules by name: when they tick, their next tick, and what became of the last."""
    with connected(url, config) as client:
        found = list(islice(client.schedules(page_size=min(limit + 1, PAGE)), limit + 1))
        listed, more = found[:limit], len(found) > limit
        results = {} if as_json else last_results(client, listed)
    if as_json:
        print_json({"schedules": listed, "more": more})
    elif listed:
        print_schedules(listed, results)
    else:
        ink.say("no schedules; make one with: penstock schedules create NAME TYPE --interval 1h", err=True)
    if more and not as_json:
        ink.hint(f"there are more than {limit}: see them with --limit")
