"""The command line: one file per resource, loaded only when one of its commands is called."""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli import options
from penstock.cli.commands import CommandGroup, command
from penstock.cli.exit_codes import exit_code

ROOT = CommandGroup(
    name="penstock",
    help="A distributed, autoscaling, asynchronous job queue and scheduler.",
    examples=("penstock up shop.jobs:app", "penstock jobs submit thumbnail url=cat.png --wait"),
    lazy={
        "up": ("penstock.cli.roles:up", "Run everything on this machine: API, scheduler and workers."),
        "api": ("penstock.cli.roles:api", "Run one API process of several, behind a load balancer."),
        "worker": ("penstock.cli.worker:worker", "Run a worker for a server that is up elsewhere."),
        "scheduler": ("penstock.cli.roles:scheduler", "Run one more scheduler for a server that is up elsewhere."),
        "autoscaler": (
            "penstock.cli.roles:autoscaler",
            "Start and stop workers, as many as there is work for.",
        ),
        "jobs": ("penstock.cli.jobs:jobs", "Submit jobs, look at them, and stop them."),
        "events": ("penstock.cli.events:events", "Print what changes the states of jobs, as it happens."),
        "schedules": ("penstock.cli.schedules:schedules", "Run jobs again and again: on an interval or by cron."),
        "queues": ("penstock.cli.queues:queues", "Look at queues, pause and resume them."),
        "history": ("penstock.cli.history:history", "Draw what happened over time."),
        "subscriptions": (
            "penstock.cli.subscriptions:subscriptions",
            "Have job events delivered to web hooks of your own.",
        ),
        "webhooks": ("penstock.cli.webhooks:webhooks", "Receive webhooks on this machine, to try them."),
        "types": ("penstock.cli.types:types", "Look at job types, rename and retire them."),
        "keys": ("penstock.cli.keys:keys", "Make API keys, list, rotate and revoke them."),
        "workers": ("penstock.cli.workers:workers", "List the workers and how they are; let some end."),
        "fleets": ("penstock.cli.fleets:fleets", "Look at fleets of workers; bound, pause and scale them."),
        "shards": ("penstock.cli.shards:shards", "Look at shards; add, weigh, drain and remove them."),
        "db": ("penstock.cli.db:db", "Bring the tables of PostgreSQL shards up to date, and see where they stand."),
        "autoscale": (
            "penstock.lab.simulation.command:autoscale",
            "Try a scaling policy on a trace, before it has a fleet.",
        ),
        "doctor": ("penstock.cli.doctor:doctor", "Check this machine, its settings and the server."),
        "demo": ("penstock.lab.demo.story:demo", "See it work: a story of jobs in under a minute."),
        "bench": ("penstock.lab.bench.command:bench", "Measure throughput, latency, growth and memory here."),
        "version": ("penstock.cli:version", "Print the version."),
    },
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            help="Print the version and exit.",
            callback=lambda context, _option, asked: _print_version(context) if asked else None,
        )
    ],
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 refused or unavailable, 2 wrong usage, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal does not have is shown as its number, and ends no command.
            stream.reconfigure(errors="backslashreplace")
    if (here := str(Path.cwd())) not in sys.path:
        # So that `module:app` is found where the user stands, as with `python -m`.
        sys.path.insert(0, here)
    sys.exit(exit_code(lambda: ROOT.main(arguments, prog_name="penstock", standalone_mode=False), os.environ))


@command("version", "penstock version --json")
@options.as_json
def version(*, as_json: bool) -> None:
    """Print the version."""
    import platform

    from penstock import __version__
    from penstock.cli.format import Printer

    python = platform.python_version()
    Printer(as_json=as_json).say(
        {"version": __version__, "python": python}, f"penstock {__version__} (Python {python})"
    )


def _print_version(context: click.Context) -> None:
    from penstock import __version__

    click.echo(f"penstock {__version__}")
    context.exit()
