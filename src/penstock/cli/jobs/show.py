"""`penstock jobs show`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.jobs.face import print_job
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("show", "penstock jobs show 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.remote
def show(*, ids: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Show everything about jobs: state and why, params, result, error, times, files."""
    with connected(url, config) as client:
        for number, job in enumerate(ids):
            item = client.get(job)
            if as_json:
                print_json(item)
                continue
            if number:
                ink.say()
            print_job(item)
