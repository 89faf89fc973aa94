"""`penstock autoscale export`"""

from itertools import islice
from pathlib import Path

import click
import msgspec

from penstock.autoscaler.simulation.trace import TracedJob
from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.server import connected
from penstock.model.wire import JobItem

PAGE = 500


@command(
    "export",
    "penstock autoscale export --queue thumbnail > thumbnail.jsonl",
    "penstock autoscale simulate --trace thumbnail.jsonl",
)
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--type", "type_name", metavar="TYPE", help="Only jobs of this type.")
@click.option("--limit", type=click.IntRange(1), default=100_000, show_default=True, help="Most jobs, the newest.")
@options.url
@options.config
def export(*, queue: str | None, type_name: str | None, limit: int, url: str | None, config: Path | None) -> None:
    """Write the history of ended jobs as a trace, one line each, for `penstock autoscale simulate --trace`.

    Nothing of what a job did is in it: when it became due, how long it ran, and how long before it was known.
    """
    with connected(url, config) as client:
        ended = (job for job in client.list(type=type_name, queue=queue, page_size=PAGE) if job.completed_at)
        traced = [one for one in map(line_of, islice(ended, limit)) if one is not None]
    for one in reversed(traced):
        click.echo(msgspec.json.encode(one))
    if not traced:
        ink.say("no such jobs have run and ended; nothing to export", err=True)


def line_of(job: JobItem) -> TracedJob | None:
    """A job's line; None if it never ran."""
    if job.started_at is None or job.completed_at is None:
        return None
    due = max(job.scheduled_at, job.created_at)
    known = (due - job.created_at).total_seconds()
    return TracedJob(due.timestamp(), (job.completed_at - job.started_at).total_seconds(), known)
