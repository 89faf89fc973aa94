"""`penstock jobs list`"""

from itertools import islice
from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.jobs.face import print_jobs
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.model.lifecycle import State

PAGE = 500


@command("list", "penstock jobs list --type thumbnail --state failed --limit 50")
@click.option("--type", "type_name", metavar="TYPE", help="Only jobs of this type.")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only jobs in this state.")
@click.option("--queue", help="Only jobs in this queue.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most jobs to list.")
@options.remote
def page(
    *,
    type_name: str | None,
    state: str | None,
    queue: str | None,
    tag: str | None,
    limit: int,
    url: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    with connected(url, config) as client:
        wanted = State(state) if state else None
        matching = client.list(type=type_name, state=wanted, queue=queue, tag=tag, page_size=min(limit + 1, PAGE))
        found = list(islice(matching, limit + 1))
    listed, more = found[:limit], len(found) > limit
    if as_json:
        print_json({"jobs": listed, "more": more})
    elif listed:
        print_jobs(listed)
    else:
        ink.say("no such jobs; submit one with: penstock jobs submit TYPE", err=True)
    if more and not as_json:
        ink.hint(f"there are more than {limit}: see them with --limit")
