"""`penstock jobs cancel`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.jobs.face import state_and_reason
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("cancel", "penstock jobs cancel 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="End a running job on the spot instead of asking it to stop.")
@options.remote
def cancel(*, ids: tuple[str, ...], force: bool, url: str | None, config: Path | None, as_json: bool) -> None:
    """Cancel jobs: waiting ones at once, running ones by asking them to stop. Ended ones stay as they are."""
    with connected(url, config) as client:
        for job in ids:
            item = client.cancel(job, force=force)
            if as_json:
                print_json(item)
            else:
                ink.say(f"{item.id}  {state_and_reason(item)}")
