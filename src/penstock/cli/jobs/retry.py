"""`penstock jobs retry`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("retry", "penstock jobs retry 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.remote
def retry(*, ids: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Submit ended jobs again, as new jobs. Prints the id of each new job."""
    with connected(url, config) as client:
        for job in ids:
            item = client.retry(job)
            if as_json:
                print_json(item)
            else:
                click.echo(item.id)
                ink.hint(f"{item.state}; it asks for what {job} asked for")
