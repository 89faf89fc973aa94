"""`penstock schedules trigger`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.jobs.ended import print_ended
from penstock.cli.machine import print_json
from penstock.cli.server import connected


@command("trigger", "penstock schedules trigger nightly --wait")
@click.argument("name", metavar="NAME")
@click.option("--wait", is_flag=True, help="Wait until it ends and print its result; exit 1 if it does not succeed.")
@options.remote
def trigger(*, name: str, wait: bool, url: str | None, config: Path | None, as_json: bool) -> int:
    """Run a schedule's job now, besides its ticks. Prints the job's id; with --wait its result."""
    with connected(url, config) as client:
        job = client.trigger(name)
        if wait:
            return print_ended(client.wait(job.id, timeout=None), as_json=as_json)
    if as_json:
        print_json(job)
    else:
        click.echo(job.id)
        ink.hint(f"{job.state}; follow it with: penstock jobs watch {job.id}")
    return 0
